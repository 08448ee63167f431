// A run's page: one stream of events moves the summary and the log.

import { showLocalTimes } from "./page.js";
import { LogViewer } from "./log_viewer.js";
import { RunStream } from "./run_stream.js";

const DOCUMENTS_EVERY = 5000;

const summary = document.getElementById("summary");
const connection = document.getElementById("connection");
const viewer = new LogViewer(document.getElementById("log"));

function showSummary(html) {
  // Rendered by the server, which escapes all that comes from documents.
  summary.innerHTML = html;
  showLocalTimes(summary);
  const state = summary.querySelector("[data-state]").dataset.state;
  for (const action of document.querySelectorAll("[data-when]")) {
    action.hidden = action.dataset.when !== state;
  }
}

/** The documents that this page's filter shows now. */
async function showDocuments() {
  try {
    const answer = await fetch(location.href, { redirect: "error" });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const [shown, found] = [document, fresh].map((page) => page.getElementById("found"));
    // Not while somebody is in it by keyboard: what they point at would vanish.
    if (found && !shown.contains(document.activeElement)) shown.replaceWith(found);
  } catch {
    // The server is away; the next time finds it again.
  }
}

const documentsMove = setInterval(() => {
  if (document.visibilityState === "visible") showDocuments();
}, DOCUMENTS_EVERY);

await viewer.open();

const stream = new RunStream(summary.dataset.events, viewer.upto, {
  line: (line) => viewer.take(line),
  summary: showSummary,
  lost: () => { connection.textContent = "connection lost, trying again …"; },
  found: () => { connection.textContent = ""; },
  async end() {
    // Once more, now that nothing is written any longer.
    clearInterval(documentsMove);
    await Promise.all([viewer.reload(), showDocuments()]);
    connection.textContent = "the run has ended";
    document.documentElement.dataset.ended = "yes";
  },
});
stream.open();
