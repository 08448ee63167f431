// The log of a run: tabs by stage, filters, and only the lines on the screen as elements.

import { LineStore } from "./line_store.js";
import { LogFilter } from "./log_filter.js";
import { lineTime } from "./page.js";

const LINE = 20;
const BEYOND = 10;
// This near to the end, the view follows new lines.
const NEAR = 20;
const AGAIN = 2000;

export class LogViewer {
  constructor(root) {
    this.root = root;
    this.lines = root.querySelector(".lines");
    this.spacer = document.createElement("div");
    this.spacer.className = "spacer";
    this.lines.append(this.spacer);
    this.tabs = [...root.querySelectorAll("[role=tab]")];
    this.level = root.querySelector("#level");
    this.text = root.querySelector("#text");
    this.pause = root.querySelector("#pause");
    this.latest = root.querySelector("#latest");
    this.counter = root.querySelector("#line-count");
    this.tab = this.tabs[0];
    // Of each tab: whether it follows the end, and where it was left.
    this.places = new Map(this.tabs.map((tab) => [tab, { follows: true, top: 0 }]));
    this.rows = new Map();
    this.unseen = 0;
    this.paused = false;
    this.listen();
  }

  get upto() {
    return this.store.upto;
  }

  get place() {
    return this.places.get(this.tab);
  }

  /** What the server has for this tab and filter now. */
  async reload() {
    const stages = this.tab.dataset.stages.split(",").filter(Boolean);
    const filter = new LogFilter(stages, this.level.value, this.text.value.trim());
    const store = new LineStore(this.root.dataset.lines, filter);
    this.store = store;
    this.unseen = 0;
    this.root.querySelector("#download").href = `${this.root.dataset.download}?${filter.query()}`;
    try {
      await store.load();
    } catch (error) {
      if (store !== this.store) return;
      this.counter.textContent = error.message;
      setTimeout(() => { if (store === this.store) this.reload(); }, AGAIN);
      return;
    }
    if (store !== this.store) return;
    this.shownTab = this.tab;
    if (this.paused) this.shown = store.total;
    this.clear();
    const { follows, top } = this.place;
    this.draw();
    this.lines.scrollTop = follows ? this.lines.scrollHeight : top;
  }

  /** The last fetch; not while the view is paused. */
  async finish() {
    if (this.paused) this.unfinished = true;
    else await this.reload();
  }

  take(line) {
    if (!this.store.append(line)) return;
    if (this.paused || !this.place.follows) this.unseen += 1;
    this.drawSoon();
  }

  listen() {
    this.lines.addEventListener("scroll", () => {
      // While another tab is fetched, the lines of the one before are on the screen.
      if (this.tab !== this.shownTab) return;
      const end = this.lines.scrollHeight - this.lines.clientHeight;
      this.place.top = this.lines.scrollTop;
      this.place.follows = end - this.lines.scrollTop <= NEAR;
      if (this.place.follows && !this.paused) this.unseen = 0;
      this.drawSoon();
    });
    for (const tab of this.tabs) {
      tab.addEventListener("click", () => this.choose(tab));
      tab.addEventListener("keydown", (event) => this.moveTab(event));
    }
    this.level.addEventListener("change", () => this.reload());
    let typing;
    this.text.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this.reload(), 250);
    });
    this.pause.addEventListener("click", () => this.setPaused(!this.paused));
    this.latest.addEventListener("click", () => {
      this.setPaused(false);
      this.place.follows = true;
      this.unseen = 0;
      this.draw();
      this.lines.focus();
    });
    new ResizeObserver(() => this.drawSoon()).observe(this.lines);
  }

  choose(tab) {
    if (tab === this.tab) return;
    for (const one of this.tabs) {
      one.setAttribute("aria-selected", String(one === tab));
      one.tabIndex = one === tab ? 0 : -1;
    }
    this.root.querySelector("[role=tabpanel]").setAttribute("aria-labelledby", tab.id);
    this.tab = tab;
    this.reload();
  }

  moveTab(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1 };
    const here = this.tabs.indexOf(event.currentTarget);
    let next = here + (steps[event.key] ?? 0);
    if (event.key === "Home") next = 0;
    if (event.key === "End") next = this.tabs.length - 1;
    if (next === here) return;
    event.preventDefault();
    const tab = this.tabs[(next + this.tabs.length) % this.tabs.length];
    tab.focus();
    this.choose(tab);
  }

  /** Paused, the view stands still; lines are counted meanwhile, and are there afterwards. */
  setPaused(paused) {
    this.paused = paused;
    this.pause.setAttribute("aria-pressed", String(paused));
    this.pause.textContent = paused ? "Resume" : "Pause";
    this.shown = paused ? this.store.total : undefined;
    if (!paused && this.place.follows) this.unseen = 0;
    if (!paused && this.unfinished) {
      this.unfinished = false;
      this.reload();
    }
    this.drawSoon();
  }

  drawSoon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.draw();
    });
  }

  draw() {
    if (!this.store.ready) return;
    const total = this.paused && this.shown !== undefined ? this.shown : this.store.total;
    this.spacer.style.height = `${total * LINE}px`;
    if (this.place.follows && !this.paused) this.lines.scrollTop = this.lines.scrollHeight;
    const first = Math.max(0, Math.floor(this.lines.scrollTop / LINE) - BEYOND);
    const last = Math.min(total, Math.ceil((this.lines.scrollTop + this.lines.clientHeight) / LINE) + BEYOND);
    for (const [place, row] of this.rows) {
      if (place < first || place >= last) {
        row.remove();
        this.rows.delete(place);
      }
    }
    for (let place = first; place < last; place += 1) this.drawLine(place);
    this.showCount(total);
  }

  drawLine(place) {
    const known = this.rows.get(place);
    if (known && known.dataset.seq) return;
    const store = this.store;
    const line = store.at(place, () => { if (store === this.store) this.drawSoon(); });
    if (known && !line) return;
    known?.remove();
    const row = line ? drawnLine(line) : waitingLine();
    row.style.transform = `translateY(${place * LINE}px)`;
    this.rows.set(place, row);
    this.spacer.append(row);
  }

  showCount(total) {
    this.latest.hidden = this.place.follows && !this.paused;
    this.latest.textContent = this.unseen ? `Jump to latest (${this.unseen} new)` : "Jump to latest";
    const counted = total === 1 ? "1 line" : `${total.toLocaleString()} lines`;
    const text = total ? counted : "No log lines yet.";
    if (this.counter.textContent !== text) this.counter.textContent = text;
  }

  clear() {
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
  }
}

function drawnLine(line) {
  const row = document.createElement("div");
  row.className = `line ${line.level}`;
  row.dataset.seq = line.seq;
  const about = line.document ? `${line.document}: ` : "";
  row.append(
    part("faint", `${lineTime(line.at)} `),
    part(`stage ${line.stage}`, `${line.stage} `),
    part("faint", about),
    part("message", line.message.replaceAll("\n", " ⏎ ")),
  );
  row.title = `${line.at} ${line.level} ${about}${line.message}`;
  return row;
}

function waitingLine() {
  const row = document.createElement("div");
  row.className = "line faint";
  row.textContent = "…";
  return row;
}

function part(kind, text) {
  const span = document.createElement("span");
  span.className = kind;
  span.textContent = text;
  return span;
}
