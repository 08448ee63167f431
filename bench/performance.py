"""The record of all figures, `docs/performance.json`, and the tables of `docs/performance.md`.

Every number of that page comes from the record. A figure keeps the value of the report before, and
one that got worse by more than a tenth is marked.
"""

import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import psutil

from bench.figures import Figure, show_number

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "performance.json"
PAGE = ROOT / "docs" / "performance.md"
SUMMARY = "summary"
WORSE_BY = 0.1
# Of the machine, by other programs: above it, figures say little about the code.
QUIET_PERCENT = 15.0
# An empty line after a marker, or it would be a part of the table.
_BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """When, of what code and on what machine figures were taken."""

    date: str
    commit: str
    machine: str

    @property
    def shown(self) -> str:
        return f"{self.date}, commit {self.commit}, {self.machine}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A figure, and what it was in the report before."""

    figure: Figure
    previous: float | None = None

    @property
    def worse(self) -> bool:
        """By more than a tenth."""
        if self.previous is None:
            return False
        change = self.figure.value - self.previous
        loss = change if self.figure.lower_is_better else -change
        return loss > WORSE_BY * abs(self.previous)

    @property
    def remark(self) -> str:
        """The verdict, and whether it got worse."""
        parts = [self.figure.verdict]
        if self.worse:
            assert self.previous is not None
            before, now = show_number(self.previous), show_number(self.figure.value)
            parts.append(f"worse: {before} → {now}")
        return "; ".join(part for part in parts if part)

    def as_json(self) -> dict[str, Any]:
        return asdict(self.figure) | {"previous": self.previous}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        fields = dict(stored)
        previous = fields.pop("previous", None)
        return cls(Figure(**fields), previous)


@dataclass(frozen=True, slots=True)
class Section:
    """The figures of one bench."""

    taken: Circumstances | None
    """None when it has never run to its end."""
    recorded: tuple[Recorded, ...]
    failure: str | None = None
    """Why its last run gave no figures; those above are of an earlier one."""
    busy_percent: float = 0.0
    """How much of the machine other programs used when the bench began."""

    def as_json(self) -> dict[str, Any]:
        return {
            "taken": asdict(self.taken) if self.taken else None,
            "failure": self.failure,
            "busy_percent": self.busy_percent,
            "figures": [one.as_json() for one in self.recorded],
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        taken = Circumstances(**stored["taken"]) if stored["taken"] else None
        recorded = tuple(Recorded.from_json(one) for one in stored["figures"])
        return cls(taken, recorded, stored["failure"], stored["busy_percent"])


EMPTY = Section(None, ())


@dataclass(frozen=True, slots=True)
class Record:
    """All sections, by the name of their bench, and when the last report was written."""

    latest: Circumstances | None
    sections: Mapping[str, Section]

    def with_figures(
        self,
        name: str,
        figures: Iterable[Figure],
        taken: Circumstances,
        busy_percent: float = 0.0,
    ) -> "Record":
        """With new figures of one bench, each beside its value so far."""
        before = {one.figure.key: one.figure.value for one in self._section(name).recorded}
        recorded = tuple(Recorded(one, before.get(one.key)) for one in figures)
        section = Section(taken, recorded, busy_percent=busy_percent)
        return self._with(name, section, taken)

    def with_failure(self, name: str, failure: str, taken: Circumstances) -> "Record":
        """Without new figures of one bench: what it had stays, and is older."""
        return self._with(name, replace(self._section(name), failure=failure), taken)

    def _section(self, name: str) -> Section:
        return self.sections.get(name, EMPTY)

    def _with(self, name: str, section: Section, taken: Circumstances) -> "Record":
        return Record(taken, {**self.sections, name: section})

    def as_json(self) -> dict[str, Any]:
        return {
            "latest": asdict(self.latest) if self.latest else None,
            "benches": {name: section.as_json() for name, section in self.sections.items()},
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        latest = Circumstances(**stored["latest"]) if stored["latest"] else None
        sections = {name: Section.from_json(one) for name, one in stored["benches"].items()}
        return cls(latest, sections)


def read_record(path: Path = RECORD) -> Record:
    """What earlier reports have found; nothing before the first one."""
    if not path.exists():
        return Record(None, {})
    return Record.from_json(json.loads(path.read_text(encoding="utf-8")))


def write_record(record: Record, path: Path = RECORD) -> None:
    written = json.dumps(record.as_json(), indent=1, ensure_ascii=False)
    path.write_text(f"{written}\n", encoding="utf-8")


def read_figures(path: Path) -> list[Figure]:
    """What a bench wrote with `--json`."""
    return [Figure(**one) for one in json.loads(path.read_text(encoding="utf-8"))]


def render(page: str, record: Record) -> str:
    """The page with its tables written anew, and its prose untouched."""
    return fill_blocks(page, lambda name: render_block(name, record))


def fill_blocks(page: str, block: Callable[[str], str]) -> str:
    """The page with what is between its markers written anew, by the name in the marker."""

    def fill(found: re.Match[str]) -> str:
        begin, name, _, end = found.groups()
        return f"{begin}\n{block(name)}\n{end}"

    return _BLOCK.sub(fill, page)


def render_block(name: str, record: Record) -> str:
    if name == SUMMARY:
        return _render_summary(record)
    return _render_section(record.sections.get(name, EMPTY), record.latest)


def _render_summary(record: Record) -> str:
    if record.latest is None:
        return "Nothing was measured yet.\n"
    rows = [_summary_row(name, section, record.latest) for name, section in record.sections.items()]
    table = _table(("bench", "targets met", "missed", "got worse", "measured"), rows)
    return f"Latest report: {record.latest.shown}.\n\n{table}"


def _summary_row(name: str, section: Section, latest: Circumstances) -> tuple[str, ...]:
    verdicts = [one.figure.met for one in section.recorded]
    worse = sum(one.worse for one in section.recorded)
    met, missed = verdicts.count(True), verdicts.count(False)
    return (f"`{name}`", str(met), str(missed), str(worse), _when(section, latest))


def _when(section: Section, latest: Circumstances) -> str:
    older = _age(section, latest)
    if section.failure:
        return "**failed to run**" + (f"; figures of {older}" if older else "")
    busy = "; on a busy machine" if section.busy_percent > QUIET_PERCENT else ""
    return (older or "in this report") + busy


def _age(section: Section, latest: Circumstances | None) -> str:
    """Where its figures are from, when not from the latest report."""
    if section.taken is None or section.taken == latest:
        return ""
    same_machine = latest is not None and section.taken.machine == latest.machine
    machine = "" if same_machine else f", {section.taken.machine}"
    return f"{section.taken.date}, commit {section.taken.commit}{machine}"


def _render_section(section: Section, latest: Circumstances | None) -> str:
    parts = []
    if section.failure:
        message = section.failure.replace("`", "'")
        parts.append(f"**The bench failed to run in the latest report:** `{message}`\n")
    if older := _age(section, latest):
        parts.append(f"Figures of {older}.\n")
    if section.busy_percent > QUIET_PERCENT:
        parts.append(
            f"**Other programs used {section.busy_percent:.0f} % of the machine when this bench "
            "began**: compare medians, and repeat it on an idle machine.\n"
        )
    if section.recorded:
        parts.append(_table(("what", "wanted", "measured", "", "from"), _rows(section.recorded)))
    return "\n".join(parts) if parts else "Not measured yet.\n"


def _rows(recorded: Sequence[Recorded]) -> list[tuple[str, ...]]:
    return [_row(one.figure, one.remark) for one in recorded]


def _row(figure: Figure, remark: str) -> tuple[str, ...]:
    return (figure.what, figure.shown_wanted, figure.shown_value, remark, figure.detail)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def describe_circumstances(date: str) -> Circumstances:
    return Circumstances(date, _commit(), _machine())


def _commit() -> str:
    """With a remark when the code was changed since."""
    commit = _git("rev-parse", "--short=10", "HEAD").strip()
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    return f"{commit} with changes" if changed.strip() else commit


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _machine() -> str:
    memory_gb = psutil.virtual_memory().total / 1024**3
    cores = f"{os.cpu_count()} cores of {_processor()}"
    return f"{cores}, {memory_gb:.0f} GB, Python {platform.python_version()}"


def _processor() -> str:
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
