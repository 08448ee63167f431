"""Where a job description stops telling about the job and starts to ask of the applicant."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from penstock.text.postings.blocks import LOOKS_LIKE_HEADING, Block
from penstock.text.postings.words import (
    ASKING,
    BONUS,
    BROAD_ASKING,
    CLOSING,
    DEMAND,
    NAMED,
    OTHER,
    TASKS,
    YOU,
)

_HEADING_CHARS = 80
_LABEL_CHARS = 40
_LONG_PARAGRAPH = 240
_MANY_MARKED = 2
# Below every marked heading: a short line that no markup sets apart.
_UNMARKED = LOOKS_LIKE_HEADING + 1


class _Kind(IntEnum):
    UNKNOWN = 0
    OTHER = 1
    BROAD = 2
    BONUS = 3
    ASKING = 4
    NAMED = 5


@dataclass(frozen=True, slots=True)
class _Section:
    """A heading and what stands below it, up to the next one."""

    start: int
    end: int
    rank: int
    kind: _Kind


def split_blocks(
    blocks: Sequence[Block], *, headed: bool = False
) -> tuple[list[Block], list[Block]]:
    """(the blocks that tell about the job, those that ask); headed: only below headings."""
    asked = set(_asked_places(blocks))
    if not asked and not headed:
        asked = set(_demanding_list(blocks))
    told = [block for place, block in enumerate(blocks) if place not in asked]
    if not told:
        return list(blocks), []
    return told, [blocks[place] for place in sorted(asked)]


def split_parts(parts: Sequence[Sequence[Block]]) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """The same for texts that stand apart: the last section of one does not go on in the next."""
    places = [set(_asked_places(part)) for part in parts]
    flags = [
        (place in asked, block)
        for part, asked in zip(parts, places, strict=True)
        for place, block in enumerate(part)
    ]
    told = tuple(block for asking, block in flags if not asking)
    return told, tuple(block for asking, block in flags if asking)


def names_section(text: str) -> bool:
    """Whether the line is a heading as they stand in job postings."""
    return _heading_kind(text) is not _Kind.UNKNOWN


def names_requirements(text: str) -> bool:
    """Whether the line calls what stands below it requirements, not only speaks to people."""
    return _heading_kind(text) is _Kind.NAMED


def asks(text: str) -> bool:
    """Whether the line is the heading of what is expected from the applicant."""
    return _heading_kind(text) in (_Kind.ASKING, _Kind.NAMED)


def names_tasks(text: str) -> bool:
    """Whether the line is the heading of what there is to do in a job."""
    return bool(TASKS.search(text))


def demands(text: str) -> bool:
    """Whether the line speaks of what people have learnt, can do or have done."""
    return bool(DEMAND.search(text))


def _asked_places(blocks: Sequence[Block]) -> Iterator[int]:
    sections = list(_sections(blocks))
    named = any(section.kind is _Kind.NAMED for section in sections)
    above: _Section | None = None
    for section in sections:
        if above and _continues(section, above, blocks):
            yield from _places(section, blocks)
        elif section.kind > _Kind.BROAD or (section.kind is _Kind.BROAD and not named):
            above = section
            yield from _places(section, blocks)
        else:
            above = None


def _continues(section: _Section, above: _Section, blocks: Sequence[Block]) -> bool:
    """Whether a section with an unheard-of heading goes on with the demands above it."""
    if section.kind not in (_Kind.UNKNOWN, _Kind.BROAD):
        return False
    lines = blocks[section.start + 1 : section.end]
    asking = not lines or any(line.item or demands(line.text) for line in lines)
    return (section.rank > above.rank and asking) or _mostly_demands(lines)


def _mostly_demands(lines: Sequence[Block]) -> bool:
    items = [line for line in lines if line.item]
    return len(items) > 1 and 2 * sum(demands(item.text) for item in items) >= len(items)


def _places(section: _Section, blocks: Sequence[Block]) -> Iterator[int]:
    """Where the section's demands stand: up to its last item, and what still speaks of them."""
    places = range(section.start, section.end)
    last = max((place for place in places if blocks[place].item), default=section.start)
    yield from range(section.start, last + 1)
    listed = last > section.start
    if not listed and _label(blocks[section.start].text) != blocks[section.start].text:
        return
    first = section.start + 1
    for place in range(last + 1, section.end):
        if place > first and _is_closing(blocks[place].text, after_list=listed):
            return
        yield place


def _is_closing(text: str, *, after_list: bool) -> bool:
    """After the list of demands, a long paragraph is the company talking about itself again."""
    long = after_list and len(text) > _LONG_PARAGRAPH
    return bool(CLOSING.search(text)) or (long and not YOU.search(text))


def _demanding_list(blocks: Sequence[Block]) -> Iterator[int]:
    """Without any heading that says so, a list of demands is still one."""
    start = 0
    for place in range(len(blocks) + 1):
        if place < len(blocks) and blocks[place].item:
            continue
        items = blocks[start:place]
        if len(items) > 2 and 3 * sum(demands(item.text) for item in items) >= 2 * len(items):
            yield from range(start - (start > 0 and _is_heading(blocks[start - 1])), place)
        start = place + 1


def _sections(blocks: Sequence[Block]) -> Iterator[_Section]:
    marked = sum(block.rank > 0 and names_section(block.text) for block in blocks)
    ranks = [_rank(block, marked >= _MANY_MARKED) for block in blocks]
    starts = [place for place, rank in enumerate(ranks) if rank]
    for start, end in pairwise([*starts, len(blocks)]):
        yield _Section(start, end, ranks[start], _heading_kind(_label(blocks[start].text)))


def _rank(block: Block, others_marked: bool) -> int:
    """Where headings are marked, a line that is not has to end or be parted by a colon."""
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
    return label if short and NAMED.search(label) else text


def _heading_kind(text: str) -> _Kind:
    if OTHER.search(text) and (
        TASKS.search(text) or not (NAMED.search(text) or BONUS.search(text))
    ):
        return _Kind.OTHER
    kinds = {
        _Kind.BONUS: BONUS,
        _Kind.NAMED: NAMED,
        _Kind.ASKING: ASKING,
        _Kind.BROAD: BROAD_ASKING,
    }
    return next((kind for kind, words in kinds.items() if words.search(text)), _Kind.UNKNOWN)
