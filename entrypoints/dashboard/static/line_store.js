// Lines of one view of a log, a page at a time: those that are looked at are here, all others stay
// with the server. So the memory of a log of any length is that of a few pages.

const PAGE = 200;
const MOST_PAGES = 40;
const AGAIN = 2000;

export class LineStore {
  constructor(address, filter) {
    this.address = address;
    this.filter = filter;
    this.pages = new Map();
    this.asked = new Set();
    this.fruitless = new Map();
    this.total = 0;
    this.upto = 0;
    this.early = [];
    this.ready = false;
  }

  /** The number of lines, and the last of them. */
  async load() {
    const found = await this.fetchPage(null);
    this.total = found.total;
    this.upto = found.upto;
    this.put(found.offset, found.lines);
    this.ready = true;
    for (const line of this.early) this.append(line);
    this.early = [];
  }

  /** A line of the stream; whether it belongs here. */
  append(line) {
    if (!this.ready) {
      this.early.push(line);
      return false;
    }
    if (line.seq <= this.upto || !this.filter.takes(line)) return false;
    this.upto = line.seq;
    const page = Math.floor(this.total / PAGE);
    const lines = this.pages.get(page) ?? (this.total % PAGE === 0 ? [] : null);
    if (lines && lines.length === this.total % PAGE) {
      lines.push(line);
      this.keep(page, lines);
    }
    this.total += 1;
    return true;
  }

  /** The line at this place, or nothing while it is fetched; `arrived` is called then. */
  at(place, arrived) {
    const page = Math.floor(place / PAGE);
    const line = this.pages.get(page)?.[place % PAGE];
    if (line) {
      this.keep(page, this.pages.get(page));
    } else if (!this.asked.has(page) && this.fruitless.get(page) !== this.total) {
      this.asked.add(page);
      this.fetchPage(page * PAGE)
        .then((found) => {
          this.put(found.offset, found.lines);
          // What the server has no more is not asked for again and again.
          if (!this.pages.get(page)?.[place % PAGE]) this.fruitless.set(page, this.total);
          arrived();
        })
        .catch(() => setTimeout(arrived, AGAIN))
        .finally(() => this.asked.delete(page));
    }
    return line;
  }

  put(offset, lines) {
    for (let start = 0; start < lines.length;) {
      const place = offset + start;
      const page = Math.floor(place / PAGE);
      const end = Math.min(lines.length, start + PAGE - (place % PAGE));
      // A page that begins in its middle has a hole in front, which is fetched when it is seen.
      const known = this.pages.get(page) ?? [];
      for (let one = start; one < end; one += 1) known[(offset + one) % PAGE] = lines[one];
      this.keep(page, known);
      start = end;
    }
  }

  /** The page that was used last goes last when there are too many. */
  keep(page, lines) {
    this.pages.delete(page);
    this.pages.set(page, lines);
    if (this.pages.size > MOST_PAGES) this.pages.delete(this.pages.keys().next().value);
  }

  async fetchPage(offset) {
    const query = this.filter.query();
    query.set("limit", PAGE);
    if (offset !== null) query.set("offset", offset);
    const answer = await fetch(`${this.address}?${query}`, { redirect: "error" });
    if (!answer.ok) throw new Error(`the log could not be read: ${answer.status}`);
    return answer.json();
  }
}
