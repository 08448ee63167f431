"""Splits the blocks of a posting into description and requirements."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any

from penstock.text.postings.blocks import (
    BONUS,
    BROAD_EXPECTATIONS,
    CLOSING,
    EXPECTATIONS,
    LOOKS_LIKE_HEADING,
    OTHER,
    REQUIREMENTS,
    SKILLS,
    TASKS,
    YOU,
    Block,
    Blocks,
    letters_only,
    read_blocks,
)

_HEADING_CHARS = 80
_LABEL_CHARS = 40
_LONG_PARAGRAPH = 240
_MANY_MARKED = 2
# Below every marked heading: a short line without markup.
_UNMARKED = LOOKS_LIKE_HEADING + 1


class Kind(IntEnum):
    """What a heading announces; a clearer sign of requirements has a higher number."""

    UNKNOWN = 0
    OTHER = 1
    BROAD = 2
    BONUS = 3
    EXPECTATIONS = 4
    REQUIREMENTS = 5


@dataclass(frozen=True, slots=True)
class _Section:
    """A heading and the blocks below it, up to the next one."""

    start: int
    end: int
    rank: int
    kind: Kind


def split_blocks(
    blocks: Sequence[Block], *, headed: bool = False
) -> tuple[list[Block], list[Block]]:
    """(description, requirements); `headed`: only blocks below a heading are requirements."""
    required = set(_required_places(blocks))
    if not required and not headed:
        required = set(_list_of_skills(blocks))
    description = [block for place, block in enumerate(blocks) if place not in required]
    if not description:
        return list(blocks), []
    return description, [blocks[place] for place in sorted(required)]


def split_parts(parts: Sequence[Sequence[Block]]) -> tuple[Blocks, Blocks]:
    """The same for separate texts: the last section of one does not continue in the next."""
    description: list[Block] = []
    required: list[Block] = []
    for part in parts:
        places = set(_required_places(part))
        for place, block in enumerate(part):
            (required if place in places else description).append(block)
    return tuple(description), tuple(required)


def names_section(text: str) -> bool:
    """Whether the line is a usual heading of job postings."""
    return heading_kind(text) is not Kind.UNKNOWN


def mentions_skills(text: str) -> bool:
    """Whether the line mentions education, skills or experience."""
    return bool(SKILLS.search(text))


def _required_places(blocks: Sequence[Block]) -> Iterator[int]:
    sections = list(_sections(blocks))
    named = any(section.kind is Kind.REQUIREMENTS for section in sections)
    above: _Section | None = None
    for section in sections:
        if above and _continues(section, above, blocks):
            yield from _places(section, blocks)
        elif section.kind > Kind.BROAD or (section.kind is Kind.BROAD and not named):
            above = section
            yield from _places(section, blocks)
        else:
            above = None


def _continues(section: _Section, above: _Section, blocks: Sequence[Block]) -> bool:
    """Whether a section with an unknown heading continues the requirements above it."""
    if section.kind not in (Kind.UNKNOWN, Kind.BROAD):
        return False
    lines = blocks[section.start + 1 : section.end]
    asking = not lines or any(line.item or mentions_skills(line.text) for line in lines)
    if section.rank > above.rank and asking:
        return True
    items = [line for line in lines if line.item]
    return len(items) > 1 and 2 * sum(mentions_skills(item.text) for item in items) >= len(items)


def _places(section: _Section, blocks: Sequence[Block]) -> Iterator[int]:
    """The section's requirements: up to its last item, and the lines after it until the closing."""
    places = range(section.start, section.end)
    last = max((place for place in places if blocks[place].item), default=section.start)
    yield from range(section.start, last + 1)
    listed = last > section.start
    if not listed and _label(blocks[section.start].text) != blocks[section.start].text:
        return
    first = section.start + 1
    for place in range(last + 1, section.end):
        text = blocks[place].text
        # After the list, a long paragraph that does not address the reader is about the company.
        long = listed and len(text) > _LONG_PARAGRAPH
        if place > first and (CLOSING.search(text) or (long and not YOU.search(text))):
            return
        yield place


def _list_of_skills(blocks: Sequence[Block]) -> Iterator[int]:
    """Lists whose items are mostly requirements, where no heading says so."""
    start = 0
    for place in range(len(blocks) + 1):
        if place < len(blocks) and blocks[place].item:
            continue
        items = blocks[start:place]
        skilled = sum(mentions_skills(item.text) for item in items)
        if len(items) > 2 and 3 * skilled >= 2 * len(items):
            yield from range(start - (start > 0 and _is_heading(blocks[start - 1])), place)
        start = place + 1


def _sections(blocks: Sequence[Block]) -> Iterator[_Section]:
    marked = sum(block.rank > 0 and names_section(block.text) for block in blocks)
    ranks = [_rank(block, marked >= _MANY_MARKED) for block in blocks]
    starts = [place for place, rank in enumerate(ranks) if rank]
    for start, end in pairwise([*starts, len(blocks)]):
        yield _Section(start, end, ranks[start], heading_kind(_label(blocks[start].text)))


def _rank(block: Block, others_marked: bool) -> int:
    """The rank of a heading, or 0. Where others have markup, a line without needs a colon."""
    if block.rank or not _is_heading(block):
        return block.rank if _is_heading(block) else 0
    label = _label(block.text)
    parted = label != block.text or label.endswith((":", "："))
    return _UNMARKED if parted or (names_section(label) and not others_marked) else 0


def _is_heading(block: Block) -> bool:
    text = _label(block.text)
    if block.item or len(text) > _HEADING_CHARS:
        return False
    return bool(block.rank) or text[-1] not in ".,;!"


def _label(text: str) -> str:
    """`Requirements: two arms` is a heading and its text in one line."""
    label, colon, rest = text.partition(": ")
    short = colon and rest and len(label) <= _LABEL_CHARS
    return label if short and REQUIREMENTS.search(label) else text


def heading_kind(text: str) -> Kind:
    """What the line announces, if it is a heading."""
    if OTHER.search(text) and (
        TASKS.search(text) or not (REQUIREMENTS.search(text) or BONUS.search(text))
    ):
        return Kind.OTHER
    kinds = {
        Kind.BONUS: BONUS,
        Kind.REQUIREMENTS: REQUIREMENTS,
        Kind.EXPECTATIONS: EXPECTATIONS,
        Kind.BROAD: BROAD_EXPECTATIONS,
    }
    return next((kind for kind, words in kinds.items() if words.search(text)), Kind.UNKNOWN)


_DEPTH = 5
_MOST_PARTS = 100
_PROSE_CHARS = 60
_KEY_HEADING_CHARS = 100

_TITLE_KEYS = (
    *("title", "jobtitle", "postingtitle", "positiontitle", "requisitiontitle", "jobpostingtitle"),
    *("displaytitle", "positionname", "jobname", "postingname", "name", "text"),
)
_SECTION_TITLES = ("title", "heading", "header", "text", "name", "label")
REQUIREMENTS_KEY = re.compile(
    r"qualification|requirement|prerequisite|musthave|nicetohave|educationandexperience"
    r"|skillsandexp|whatyoubring|whoyouare|candidateprofile"
)
_DESCRIPTION_KEY = re.compile(
    r"description|summary|overview|content|responsib|duties|^(job)?body|about|^intro|opening|closing"
    r"|conclusion|additional|benefits|whatyou|^(job)?details$|team"
)
_SKIPPED_KEY = re.compile(
    r"^(meta|seo|og|social|short|brief)|snippet|teaser|legal|disclaimer|privacy|cookie|eeo|equal"
    r"|compliance|gdpr|^appl|question|forms?$|confirm|notice|banner|footer|^nav|related|similar"
    r"|recommend|other(job|position|posting)|translat|i18n|theme|branding|demographic|survey|alert"
    r"|share|breadcrumb|image|video|url$|keywords"
)
_FACT_KEY = re.compile(r"location|^(job|requisition|posting)?id$|url$|^slug$")


_Part = tuple[bool, Blocks]
"""Whether it is a text of requirements, and the text."""


def read_title(node: Mapping[str, Any]) -> str:
    """The title of the job in the object, or an empty text."""
    keyed = {normalise_key(key): value for key, value in node.items()}
    titles = (keyed.get(key) for key in _TITLE_KEYS)
    return next((title for title in titles if isinstance(title, str) and title.strip()), "")


@lru_cache(maxsize=4096)
def normalise_key(key: str) -> str:
    """`job_title`, `jobTitle` and `job-title` are one key."""
    return re.sub(r"[^a-z0-9]", "", key.lower())


def read_sections(node: Mapping[str, Any], rows: Mapping[str, Any]) -> tuple[Blocks, Blocks]:
    """(description, requirements) of an object; `rows` are texts that values refer to by name."""
    parts = list(islice(_Sections(rows).read(node, None, _DEPTH), _MOST_PARTS))
    requiring = drop_repeats([blocks for required, blocks in parts if required])
    apart = tuple(block for part in requiring for block in part)
    describing = drop_repeats([blocks for required, blocks in parts if not required])
    if len(describing) == 1:
        return describing[0], apart
    description, required = split_parts(describing)
    return description, (*required, *apart)


def drop_repeats(parts: Sequence[Blocks]) -> list[Blocks]:
    """The texts without those contained in others; of two equal ones, that with more markup."""
    letters = [letters_only(part) for part in parts]
    marks = [len(part) + sum(block.item or block.rank > 0 for block in part) for part in parts]
    order = sorted(range(len(parts)), key=lambda n: (-len(letters[n]), -marks[n]))
    kept: list[int] = []
    for number in order:
        if not any(letters[number] in letters[other] for other in kept):
            kept.append(number)
    return [parts[number] for number in sorted(kept)]


class _Sections:
    """Reads the texts of an object by the names of their keys, down to a few levels.

    `required` says whether a text is one of requirements; None while no key has said what it is.
    """

    def __init__(self, rows: Mapping[str, Any]) -> None:
        self._rows = rows

    def read(self, node: Mapping[str, Any], required: bool | None, depth: int) -> Iterator[_Part]:
        for key, value in node.items():
            name, role = normalise_key(key), required
            if _SKIPPED_KEY.search(name):
                continue
            if REQUIREMENTS_KEY.search(name):
                role = True
            elif required is None and _DESCRIPTION_KEY.search(name):
                role = False
            yield from self._read_value(value, role, depth)

    def _read_value(self, value: Any, required: bool | None, depth: int) -> Iterator[_Part]:
        text = self._rows.get(value, value) if isinstance(value, str) else value
        if isinstance(text, str) and required is not None:
            if len(text) >= _PROSE_CHARS or "<" in text:
                yield required, tuple(read_blocks(text))
        elif isinstance(value, list) and depth:
            yield from self._read_list(value, required, depth - 1)
        elif isinstance(value, dict) and depth:
            facts = any(_FACT_KEY.search(normalise_key(key)) for key in value)
            if not (facts and read_title(value)):  # else it is another job
                yield from self._read_section(value, required, depth - 1)

    def _read_list(
        self, values: Sequence[Any], required: bool | None, depth: int
    ) -> Iterator[_Part]:
        lines = [line for value in values if (line := _lone_text(value))]
        if lines and required is not None and sum(map(len, lines)) >= _PROSE_CHARS:
            yield required, tuple(_items(lines))
        elif not lines:
            for value in values:
                yield from self._read_value(value, required, depth)

    def _read_section(
        self, section: Mapping[str, Any], required: bool | None, depth: int
    ) -> Iterator[_Part]:
        named = (key for key in section if normalise_key(key) in _SECTION_TITLES)
        heading = next((key for key in named if _is_section_title(section[key])), None)
        title = str(section[heading]).strip() if heading else ""
        role = False if required is None and names_section(title) else required
        rest = {key: value for key, value in section.items() if key != heading}
        for own, blocks in self.read(rest, role, depth):
            head = read_blocks(title)[:1]
            marked = (Block(block.text, LOOKS_LIKE_HEADING) for block in head)
            yield own, (*marked, *blocks)


def _is_section_title(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _KEY_HEADING_CHARS and "<" not in value


def _lone_text(value: Any) -> str:
    """A list's item that is a text, or an object with nothing but one."""
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    return value if isinstance(value, str) else ""


def _items(lines: Sequence[str]) -> Iterator[Block]:
    for line in lines:
        blocks = read_blocks(line)
        yield from [Block(blocks[0].text, item=True)] if len(blocks) == 1 else blocks
