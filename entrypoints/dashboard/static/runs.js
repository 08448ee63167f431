// While a run is active the table is read every few seconds.

import { showLocalTimes } from "./page.js";

const EVERY = 3000;
const table = document.getElementById("runs");

async function refresh() {
  if (document.visibilityState === "visible" && table.querySelector("[data-active]:not([data-active='0'])")) {
    try {
      const answer = await fetch(table.dataset.source, { redirect: "error" });
      // Not while it has the keyboard focus: the focused element would vanish.
      if (answer.ok && !table.contains(document.activeElement)) {
        table.innerHTML = await answer.text();
        showLocalTimes(table);
      }
    } catch {
      // The server is away: the next time finds it again, or this table stays as it is.
    }
  }
  setTimeout(refresh, EVERY);
}

setTimeout(refresh, EVERY);
