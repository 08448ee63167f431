// Which lines a view shows: the same rule as the server's, for lines that come by the stream.

const LEVELS = ["INFO", "WARNING", "ERROR"];

export class LogFilter {
  constructor(stages, level, text) {
    this.stages = stages;
    this.level = level;
    // As it was typed: databases have rules of their own for letters beyond the English ones.
    this.asked = text;
    this.text = text.toLowerCase();
  }

  takes(line) {
    if (this.stages.length && !this.stages.includes(line.stage)) return false;
    if (this.level && LEVELS.indexOf(line.level) < LEVELS.indexOf(this.level)) return false;
    if (!this.text) return true;
    const where = [line.message, line.document, line.source];
    return where.some((one) => (one ?? "").toLowerCase().includes(this.text));
  }

  query() {
    const query = new URLSearchParams();
    for (const stage of this.stages) query.append("stage", stage);
    if (this.level) query.set("level", this.level);
    if (this.asked) query.set("text", this.asked);
    return query;
  }
}
