"""A text parsed into lines, each with the section of the document that it belongs to."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from typing import NamedTuple

from penstock.rules.vocabulary import lower_in_place, read_table

_MAX_HEADING_CHARS = 48
_BULLET = re.compile(r"#+\s+|[-*•·▪●◦‣–—»■✓>]+\s+|\(?\d{1,2}[.)]\s+|[•▪●◦‣■✓]")
_WIDE_GAP = re.compile(r"[^\S\n]{5,}|\n{5,}")
_COLUMN_GAP = re.compile(r"(?:(?<=\S)(?:  +| +\| +)|^ {12,}(?:\| +)?)(?=[^\s|])")
_MIN_COLUMN_LINES = 6
_YEAR_HINT = re.compile(r"[12’'][09]?\d\d")
_RUN_TOGETHER_CHARS = 400
# After a sentence, and after the dates that stand below a job's title.
_RUN_ON = re.compile(
    r"(?<=[a-z\d)][.;]) +(?=[A-Z•])|(?:(?<= to Present)|(?<= to \d{4})|(?<=[a-z] \d{4})) +(?!to )"
)
_HEADING_MARKS = "#*_=~:-–—•· \t[]|"


class Section(StrEnum):
    """What a stretch of lines is about, as its heading says."""

    HEAD = "head"
    SUMMARY = "summary"
    SKILLS = "skills"
    EXPERIENCE = "experience"
    EDUCATION = "education"
    CERTIFICATIONS = "certifications"
    REQUIREMENTS = "requirements"
    DUTIES = "duties"
    COMPANY = "company"
    OFFER = "offer"
    OTHER = "other"


_OF_POSTINGS = frozenset({Section.REQUIREMENTS, Section.DUTIES, Section.COMPANY, Section.OFFER})
# "Languages: Python" or "Role: Engineer" states a fact; only on their own do they open a part.
_ONLY_ALONE = frozenset(
    {"languages", "projects", "role", "salary", "pay", "contact", "jobs", "career", "description"}
    | {"profile", "essential", "preferred", "experience"}
)


class TextLine(NamedTuple):
    """One line without its bullet, and where its own words start in the text."""

    text: str
    start: int
    part: Section
    bullet: bool = False
    heading: bool = False
    gap: bool = False
    """An empty line stands before this one."""


@dataclass(frozen=True)
class ParsedText:
    """A text whose lines and sections are computed once."""

    text: str
    resume: bool = False

    @cached_property
    def lowered(self) -> str:
        return lower_in_place(self.text)

    @cached_property
    def lines(self) -> tuple[TextLine, ...]:
        """The lines that hold something."""
        return tuple(_read_lines(self.text, resume=self.resume))

    @cached_property
    def parts(self) -> frozenset[Section]:
        """The parts that a heading announces."""
        return frozenset(line.part for line in self.lines) - {Section.HEAD}

    @cached_property
    def starts(self) -> list[int]:
        """Where each line starts in the text."""
        return [line.start for line in self.lines]

    @cached_property
    def dated(self) -> list[tuple[int, TextLine]]:
        """The lines, with their places, that hold a year; one search for all of them."""
        found = (
            bisect_right(self.starts, hit.start()) - 1 for hit in _YEAR_HINT.finditer(self.text)
        )
        return [(place, self.lines[place]) for place in dict.fromkeys(found) if place >= 0]

    def within(self, *parts: Section) -> list[TextLine]:
        """The lines of these parts, without their headings."""
        return [line for line in self.lines if line.part in parts and not line.heading]

    def first_block(self, part: Section) -> list[TextLine]:
        """The lines of a part up to an empty line, or all where each stands apart."""
        lines = self.within(part)
        gaps = [index for index, line in enumerate(lines) if line.gap and index > 0]
        apart = len(gaps) >= len(lines) - 1
        return lines if apart or not gaps else lines[: gaps[0]]

    def spans(self, *parts: Section) -> list[tuple[int, int]]:
        """The stretches of the text that the lines of these parts cover."""
        covered: list[tuple[int, int]] = []
        inside = False
        for line in self.lines:
            if line.part in parts:
                start = covered.pop()[0] if inside else line.start
                covered.append((start, line.start + len(line.text)))
            inside = line.part in parts
        return covered


def parse_text(text: str, *, resume: bool = False) -> ParsedText:
    """The text with one kind of line end and space, and no wide gaps.

    A few spaces still separate columns; thousands would only make patterns slow. In a résumé
    "Responsibilities" or "Projects" under a job belong to the job.
    """
    plain = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u00a0", " ")
    if resume and plain.count("  ") > _MIN_COLUMN_LINES:
        plain = _columns_apart(plain)
    plain = _WIDE_GAP.sub(lambda gap: gap[0][:4], plain)
    if resume and max(map(len, plain.split("\n"))) > _RUN_TOGETHER_CHARS:
        plain, headings = _run_together().subn(r"\n\1\n", plain)
        plain = _RUN_ON.sub("\n", plain) if headings else plain
    return ParsedText(plain, resume)


def _columns_apart(text: str) -> str:
    """Two columns that were printed side by side, each with headings, one below the other."""
    lines = text.split("\n")
    starts = Counter(gap.end() for line in lines for gap in _COLUMN_GAP.finditer(line))
    at, count = max(starts.items(), key=lambda start: start[1], default=(0, 0))
    if count < max(_MIN_COLUMN_LINES, 0.4 * sum(map(bool, map(str.strip, lines)))):
        return text
    across = [line[at - 1 : at].strip(" |") != "" for line in lines]
    left = [
        line if whole else line[:at].rstrip(" |") for line, whole in zip(lines, across, strict=True)
    ]
    right = ["" if whole else line[at:] for line, whole in zip(lines, across, strict=True)]
    headings = _part_of(resume=True)
    if all(
        any(one.strip() and _heading_key(one) in headings for one in side) for side in (left, right)
    ):
        return "\n".join((*left, "", *right))
    return text


def _read_lines(text: str, *, resume: bool) -> Iterator[TextLine]:
    headings = _part_of(resume=resume)
    part, position, resumed, gap, capitals, last = Section.HEAD, 0, None, False, False, ""
    for raw in text.split("\n"):
        stripped = raw.strip()
        if stripped:
            line = _read_line(stripped, position + raw.index(stripped[0]), part, headings)
            if resume:
                apart = gap and capitals and not last.isupper()
                line, last = _fit_resume(line, stripped, part, capitals, apart), stripped
            if line.part is not part:
                resumed = None if line.heading else part
                part, capitals = line.part, stripped.isupper()
            if line.text:
                yield line._replace(gap=gap) if gap else line
            gap = False
        elif resumed is not None:
            # "Skills: Python, SQL" opens a part only up to the next empty line.
            part, resumed, gap = resumed, None, True
        else:
            gap = True
        position += len(raw) + 1


def _fit_resume(
    line: TextLine, stripped: str, part: Section, capitals: bool, apart: bool
) -> TextLine:
    """The line without a heading that is a job's own, and as one where no table knows it."""
    if part is Section.EXPERIENCE and (line.heading or line.part is not part):
        # Jobs end at studies or at a heading written as their own was.
        studies = line.part in (Section.EDUCATION, Section.CERTIFICATIONS)
        alike = line.part is not Section.SUMMARY and (stripped.isupper() or not capitals)
        return line if line.heading and (studies or alike) else TextLine(stripped, line.start, part)
    # Words in capitals, alone, head another part.
    if part is line.part is Section.SKILLS and apart and stripped.isupper() and "," not in stripped:
        return line if line.heading else TextLine(stripped, line.start, Section.OTHER, heading=True)
    return line


def _read_line(
    stripped: str, start: int, part: Section, headings: Mapping[str, Section]
) -> TextLine:
    opened = _opened_part(stripped, headings)
    if opened:
        return TextLine(stripped.strip(_HEADING_MARKS), start, opened, heading=True)
    mark = _BULLET.match(stripped)
    skipped = mark.end() if mark else 0
    bullet = mark is not None and stripped[0] != "#"
    body = stripped[skipped:]
    label, colon, rest = body[:_MAX_HEADING_CHARS].partition(":")
    if colon and rest and not bullet:
        key = _heading_key(label)
        labelled = None if key in _ONLY_ALONE else headings.get(key)
        if labelled:
            skipped += len(label) + 1
            listed = labelled is Section.SKILLS
            return TextLine(stripped[skipped:].strip(), start + skipped, labelled, listed)
    return TextLine(body, start + skipped, part, bullet)


def _opened_part(stripped: str, headings: Mapping[str, Section]) -> Section | None:
    if len(stripped) > _MAX_HEADING_CHARS or stripped[-1] in ",;":
        return None
    key = _heading_key(stripped)
    if (part := headings.get(key)) is not None:
        return part
    if key.startswith("about ") and "About " in stripped:
        return headings.get("about us")
    if stripped[-1] == ":" or stripped.isupper():
        # "SAP Skills:" has no entry of its own.
        last = headings.get(key.rpartition(" ")[2])
        return last if last is Section.SKILLS and key.count(" ") < 4 else None
    return None


@cache
def _part_of(*, resume: bool) -> dict[str, Section]:
    table = {
        _heading_key(heading): Section(part)
        for part, headings in read_table("headings").items()
        for heading in headings
    }
    if not resume:
        return table
    kept = {key: part for key, part in table.items() if part not in _OF_POSTINGS}
    return kept | {key: Section.SKILLS for key in table.keys() - kept.keys() if "skill" in key}


@cache
def _run_together() -> re.Pattern[str]:
    """Headings in capitals between the words of a line that was many."""
    written = (key.upper().replace(" AND ", "(?: AND | & |/)") for key in _part_of(resume=True))
    longest_first = "|".join(sorted(written, key=len, reverse=True))
    return re.compile(rf"(?<=[\w.)]) ({longest_first}):? (?=\w)")


def _heading_key(heading: str) -> str:
    plain = heading.strip(_HEADING_MARKS + "?!.").replace("’", "'").lower()
    return " ".join(plain.replace("&", " and ").replace("/", " and ").split())
