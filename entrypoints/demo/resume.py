"""Résumés in a light markup, one kind per line, so that each layout can set them its own way."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a line of a résumé is; the value is the mark it starts with."""

    NAME = "# "
    CONTACT = "> "
    SECTION = "## "
    ENTRY = "### "
    BULLET = "- "
    PARAGRAPH = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a résumé without its mark."""

    kind: Kind
    text: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The fields of an entry: position, employer, period."""
        return tuple(part.strip() for part in self.text.split("|"))


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the lines below it."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """A person, how to reach them, and what they say about themselves."""

    name: str
    contact: tuple[str, ...]
    sections: tuple[Section, ...]


def parse_resume(source: str) -> Resume:
    lines = [_parse_line(line) for line in source.splitlines() if line.strip()]
    starts = [at for at, line in enumerate(lines) if line.kind is Kind.SECTION]
    ends = [*starts[1:], len(lines)]
    return Resume(
        name=next(line.text for line in lines if line.kind is Kind.NAME),
        contact=tuple(line.text for line in lines if line.kind is Kind.CONTACT),
        sections=tuple(
            Section(lines[start].text, tuple(lines[start + 1 : end]))
            for start, end in zip(starts, ends, strict=True)
        ),
    )


def _parse_line(line: str) -> Line:
    kind = next(kind for kind in Kind if line.startswith(kind.value))
    return Line(kind, line.removeprefix(kind.value).strip())
