// A run's page: one stream of events moves the summary and the log.

import { LogViewer } from "./log_viewer.js";
import { showLocalTimes } from "./page.js";
import { RunStream } from "./run_stream.js";

const DOCUMENTS_EVERY = 5000;

const summary = document.getElementById("summary");
const found = document.getElementById("found");
const connection = document.getElementById("connection");
const viewer = new LogViewer(document.getElementById("log"));

/** Replaces what an element shows, but not while it has the keyboard focus. */
class Moving {
  constructor(element) {
    this.element = element;
    element.addEventListener("focusout", () => setTimeout(() => this.draw()));
  }

  show(html) {
    this.html = html;
    this.draw();
  }

  draw() {
    if (this.html === undefined || this.element.contains(document.activeElement)) return;
    // Rendered by the server, which escapes all that comes from documents.
    this.element.innerHTML = this.html;
    this.html = undefined;
    showLocalTimes(this.element);
    this.drawn?.();
  }
}

const movingSummary = new Moving(summary);
const movingDocuments = new Moving(found);
let counts = summary.querySelector("[data-counts]").dataset.counts;
let documentsAt = performance.now();

movingSummary.drawn = () => {
  const { state, counts: now } = summary.querySelector("[data-state]").dataset;
  for (const action of document.querySelectorAll("[data-when]")) {
    action.hidden = action.dataset.when !== state;
  }
  if (now !== counts && performance.now() - documentsAt > DOCUMENTS_EVERY) showDocuments(now);
};

/** The documents that this page's filter shows now. */
async function showDocuments(now) {
  counts = now;
  documentsAt = performance.now();
  try {
    const answer = await fetch(`${found.dataset.source}${location.search}`, { redirect: "error" });
    if (answer.ok) movingDocuments.show(await answer.text());
  } catch {
    // The server is away; the next time finds it again.
  }
}

await viewer.reload();

const stream = new RunStream(summary.dataset.events, viewer.upto, {
  line: (line) => viewer.take(line),
  summary: (html) => movingSummary.show(html),
  lost: () => { connection.textContent = "Connection lost. Reconnecting …"; },
  found: () => { connection.textContent = ""; },
  refused(status) {
    connection.textContent = status === 404 ? "This run no longer exists." : "Signed out: ";
    if (status === 404) return;
    const link = document.createElement("a");
    link.href = location.href;
    link.textContent = "sign in again";
    connection.append(link);
  },
  async end() {
    // Once more, now that nothing is written any longer.
    await Promise.all([viewer.finish(), showDocuments()]);
    connection.textContent = "Run ended.";
  },
});
stream.open();
