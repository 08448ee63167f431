// The events of a run, without a gap and without a repeat, however often the connection breaks.

const FIRST_WAIT = 500;
const LONGEST_WAIT = 10000;

export class RunStream {
  constructor(address, after, handlers) {
    this.address = address;
    this.last = after;
    this.handlers = handlers;
    this.wait = FIRST_WAIT;
  }

  open() {
    this.events = new EventSource(`${this.address}?after=${this.last}`);
    this.events.addEventListener("open", () => {
      this.wait = FIRST_WAIT;
      this.handlers.found();
    });
    this.events.addEventListener("log", (event) => this.takeLine(event));
    this.events.addEventListener("summary", (event) => this.handlers.summary(JSON.parse(event.data).html));
    this.events.addEventListener("end", () => {
      this.events.close();
      this.handlers.end();
    });
    // Browsers connect again by themselves, but give up when a server answers with an error, as
    // one that is being restarted does. We always begin anew, after the last line we have.
    this.events.addEventListener("error", async () => {
      this.events.close();
      this.handlers.lost();
      const refused = await this.askWhy();
      if (refused !== null) {
        this.handlers.refused(refused);
        return;
      }
      setTimeout(() => this.open(), this.wait);
      this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
    });
  }

  /** A stream that breaks does not say why: the status, if it is one that stays; else nothing. */
  async askWhy() {
    try {
      const answer = await fetch(this.address.replace(/events$/, "lines?limit=1"), { redirect: "manual" });
      if (answer.type === "opaqueredirect") return 401;
      return [401, 403, 404].includes(answer.status) ? answer.status : null;
    } catch {
      return null;
    }
  }

  takeLine(event) {
    const line = JSON.parse(event.data);
    if (line.seq <= this.last) return;
    this.last = line.seq;
    this.handlers.line(line);
  }
}
