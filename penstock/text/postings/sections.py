"""Tells the parts of a posting apart: what the job is, what it asks for, and all the rest."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from penstock.text.postings.blocks import LOOKS_LIKE_HEADING, Block, Blocks, read_blocks
from penstock.text.postings.headings import Kind, heading_kind, words_for

_HEADING_CHARS = 90
_LABEL_CHARS = 40
_SHORT_HEADING = 60
_PROSE_BYTES = 100
_LONG_PARAGRAPH = 240
_MANY_MARKED = 2
_CLOSING_BYTES = 40
_LEAST_DESCRIPTION = 100
# Below every marked heading: a short line without markup.
_UNMARKED = LOOKS_LIKE_HEADING + 1
_TOLD = frozenset({Kind.UNKNOWN, Kind.ROLE})
# Part of a posting's text, but neither its description nor its requirements.
_BESIDE = frozenset({Kind.OFFER, Kind.COMPANY})
_REST = _BESIDE | {Kind.LEGAL, Kind.APPLY, Kind.JOBS}


@dataclass(frozen=True, slots=True)
class Split:
    """The parts of a posting, each in the page's order."""

    description: Blocks
    requirements: Blocks
    text: Blocks
    """Both of them, and what is offered by whom."""
    kinds: frozenset[Kind]
    """What its parts are about."""
    headed: frozenset[Kind]
    """What its headings announce."""
    lists: int
    """How many of its sections are lists."""


@dataclass(frozen=True, slots=True)
class _Section:
    """A heading and the blocks below it, up to the next one."""

    start: int
    end: int
    rank: int
    kind: Kind


def split_blocks(blocks: Sequence[Block], *, lists: bool = True) -> Split:
    """The description, the requirements, and the text of a posting.

    Without `lists`, only what stands below a heading is a requirement.
    """
    sections = list(_sections(blocks))
    known = any(section.kind is not Kind.UNKNOWN for section in sections)
    kinds, headed = _kinds(blocks, sections, lists)
    told = [block for block, kind in zip(blocks, kinds, strict=True) if kind in _TOLD]
    if _size(told) < _LEAST_DESCRIPTION:
        # All that it tells stands below a heading on the company.
        kinds = [Kind.UNKNOWN if kind is Kind.COMPANY else kind for kind in kinds]

    def those(*wanted: Kind) -> Blocks:
        return tuple(block for block, kind in zip(blocks, kinds, strict=True) if kind in wanted)

    return Split(
        description=those(*_TOLD),
        requirements=those(Kind.REQUIRED),
        text=those(*_TOLD, *_BESIDE, Kind.REQUIRED),
        kinds=frozenset(kinds),
        headed=frozenset(headed) if known else frozenset(headed) & {Kind.ROLE},
        lists=sum(_is_list(blocks, section) for section in sections),
    )


def split_text(text: str) -> Split:
    """The same of a posting's plain text, without the title and the facts above its body."""
    return split_blocks(skip_facts(read_blocks(text)))


def skip_facts(blocks: Sequence[Block]) -> list[Block]:
    """The blocks from the first paragraph, or the first heading that announces a part."""
    start = next((n for n, block in enumerate(blocks) if _starts_body(block)), len(blocks))
    above = blocks[start - 1] if start else None
    headed = above and above.rank and not above.linked and is_heading(above)
    return list(blocks[start - 1 if headed else start :])


def _starts_body(block: Block) -> bool:
    if block.linked:
        return False
    kind = _announced(block.text) if is_heading(block) else Kind.UNKNOWN
    announces = kind not in (Kind.UNKNOWN, Kind.APPLY, Kind.JOBS)
    return announces or measure(block.text) >= _PROSE_BYTES


def is_heading(block: Block) -> bool:
    """Whether the line could be one: short, and no sentence unless it is marked."""
    text = _label(block.text)
    if block.item or len(text) > _HEADING_CHARS:
        return False
    return bool(block.rank) or text[-1] not in ".,;!。"


def asks(blocks: Sequence[Block]) -> bool:
    """Whether half of the lines speak of education, skills or experience."""
    return (
        2 * sum(bool(words_for("asking").search(block.text)) for block in blocks) >= len(blocks) > 0
    )


def measure(text: str) -> int:
    """The length in bytes: a character of Chinese says as much as three of English."""
    return len(text.encode("utf-8", "ignore"))


def _size(blocks: Sequence[Block]) -> int:
    return sum(measure(block.text) for block in blocks)


def _kinds(
    blocks: Sequence[Block], sections: Sequence[_Section], lists: bool
) -> tuple[list[Kind], list[Kind]]:
    """What each block is about, and each section."""
    kinds = [block.kind for block in blocks]
    named = any(section.kind is Kind.REQUIRED for section in sections) or Kind.REQUIRED in kinds
    above: list[_Section] = []
    seen: list[Kind] = []
    if all(section.kind is Kind.UNKNOWN for section in sections):
        sections = _by_order(sections, blocks)
    for section in sections:
        kind = _kind_of(section, blocks, above, named)
        if kind is Kind.UNKNOWN:
            kind = _kind_by_order(section, blocks, seen, named)
        seen.append(kind)
        above = [outer for outer in above if outer.rank < section.rank]
        above.append(replace(section, kind=kind))
        if kind is not Kind.UNKNOWN:
            kinds[section.start : section.end] = [kind] * (section.end - section.start)
        if kind is Kind.REQUIRED:
            for place in _places_after(section, blocks):
                kinds[place] = Kind.UNKNOWN
    if lists and not named and Kind.REQUIRED not in kinds:
        for place in _asking_list(blocks, kinds):
            kinds[place] = Kind.REQUIRED
    for place in _closing_places(blocks):
        kinds[place] = Kind.LEGAL
    return kinds, seen


def _by_order(sections: Sequence[_Section], blocks: Sequence[Block]) -> list[_Section]:
    """Sections in a language that is not known here: tasks come first, what is offered last."""
    listed = [section for section in sections if _is_list(blocks, section)]
    order = dict(zip(listed, (Kind.ROLE, Kind.REQUIRED, Kind.OFFER), strict=False))
    return [replace(s, kind=order.get(s, s.kind)) if len(order) > 1 else s for s in sections]


def _is_list(blocks: Sequence[Block], section: _Section) -> bool:
    return sum(block.item for block in blocks[section.start : section.end]) > 1


def _kind_by_order(
    section: _Section, blocks: Sequence[Block], seen: Sequence[Kind], named: bool
) -> Kind:
    """What an unknown heading announces by its place: tasks, what is asked, and all the rest."""
    if Kind.REQUIRED in seen:
        place = seen.index(Kind.REQUIRED)
        rest = next((kind for kind in reversed(seen[place:]) if kind in _REST), None)
        return rest or (Kind.OFFER if place else Kind.UNKNOWN)
    lines = blocks[section.start + 1 : section.end]
    listed = sum(line.item for line in lines) > 1 or len(lines) > 2
    if not named and seen and seen[-1] is Kind.ROLE and listed:
        return Kind.REQUIRED
    return Kind.UNKNOWN


def _kind_of(
    section: _Section, blocks: Sequence[Block], above: Sequence[_Section], named: bool
) -> Kind:
    """What its heading announces, or that of the section that this one is a part of."""
    if section.kind is not Kind.UNKNOWN:
        return section.kind
    lines = blocks[section.start + 1 : section.end]
    listed = [line for line in lines if line.item]
    if not named and words_for("leading").search(blocks[section.start].text) and asks(listed):
        return Kind.REQUIRED
    outer = next((one for one in reversed(above) if one.rank < section.rank), None)
    if outer and outer.kind is not Kind.UNKNOWN and outer.rank < _UNMARKED:
        goes_on = outer.kind is not Kind.REQUIRED or not lines or listed or asks(lines)
        return outer.kind if goes_on else Kind.UNKNOWN
    before = above[-1] if above else None
    if before and before.kind is Kind.REQUIRED and len(listed) > 1 and asks(listed):
        return Kind.REQUIRED
    return Kind.UNKNOWN


def _places_after(section: _Section, blocks: Sequence[Block]) -> Iterator[int]:
    """The paragraphs after the requirements' list that speak of something else."""
    places = range(section.start, section.end)
    last = max((place for place in places if blocks[place].item), default=section.start)
    first = section.start + 1
    for place in range(last + 1, section.end):
        text = blocks[place].text
        # After the list, a long paragraph is about the company or the job again.
        long = last > section.start and len(text) > _LONG_PARAGRAPH
        if place > first and (
            words_for("closing").search(text) or words_for("pay").search(text) or long
        ):
            yield from range(place, section.end)
            return


def _asking_list(blocks: Sequence[Block], kinds: Sequence[Kind]) -> Iterator[int]:
    """Lists whose items are mostly requirements, where no heading says so."""
    start = 0
    for place in range(len(blocks) + 1):
        if place < len(blocks) and blocks[place].item and kinds[place] is Kind.UNKNOWN:
            continue
        items = blocks[start:place]
        if len(items) > 2 and 3 * sum(
            bool(words_for("asking").search(i.text)) for i in items
        ) >= 2 * len(items):
            yield from range(start - (start > 0 and is_heading(blocks[start - 1])), place)
        start = place + 1


def _sections(blocks: Sequence[Block]) -> Iterator[_Section]:
    named = [_announced(block.text) for block in blocks]
    marked = sum(
        block.rank > 0 and kind is not Kind.UNKNOWN
        for block, kind in zip(blocks, named, strict=True)
    )
    ranks = [
        _rank(block, kind, marked >= _MANY_MARKED)
        for block, kind in zip(blocks, named, strict=True)
    ]
    if marked < _MANY_MARKED:
        _add_alike(blocks, ranks)
    starts = [place for place, rank in enumerate(ranks) if rank]
    for start, end in pairwise([*starts, len(blocks)]):
        # A section does not go on in the next field of structured data.
        field = blocks[start].field
        own = (n for n in range(start, end) if blocks[n].field == field)
        yield _Section(start, max(own) + 1, ranks[start], named[start])


def _add_alike(blocks: Sequence[Block], ranks: list[int]) -> None:
    """Give a rank to the lines marked up like those that are known to be headings."""
    known = {blocks[place].markup for place, rank in enumerate(ranks) if rank == _UNMARKED}
    for place, (block, below) in enumerate(pairwise(blocks)):
        alike = block.markup in known and len(block.text) <= _SHORT_HEADING
        if ranks[place] or not alike or not is_heading(block) or ranks[place + 1]:
            continue
        apart = block.markup != below.markup and measure(below.text) > len(block.text)
        if below.item or apart:
            ranks[place] = _UNMARKED


def _rank(block: Block, kind: Kind, others_marked: bool) -> int:
    """The rank of a heading, or 0. Where others have markup, a line without needs a colon."""
    if not is_heading(block):
        return 0
    if block.rank:
        return block.rank
    label = _label(block.text)
    parted = label != block.text or label.endswith((":", "："))
    return _UNMARKED if parted or (kind is not Kind.UNKNOWN and not others_marked) else 0


def _announced(text: str) -> Kind:
    """What the line announces if it is a heading; `Employer: Mills Ltd` is a fact."""
    label = _label(text)
    return Kind.UNKNOWN if label == text and ": " in text else heading_kind(label)


def _label(text: str) -> str:
    """`Requirements: two arms` is a heading and its text in one line."""
    label, colon, rest = text.partition(": ")
    short = colon and rest and len(label) <= _LABEL_CHARS
    return label if short and heading_kind(label) in (Kind.REQUIRED, Kind.ROLE) else text


def _closing_places(blocks: Sequence[Block]) -> range:
    """The closing statements and what follows them, after the last list of the posting."""
    after = max((place for place, block in enumerate(blocks) if block.item), default=None)
    first = max(1, len(blocks) // 2 if after is None else after + 1)
    closing = (n for n in range(first, len(blocks)) if _is_closing(blocks[n]))
    apart = len(blocks) - sum(map(len, _closing_groups(blocks, first)))
    return range(min(apart, next(closing, apart)), len(blocks))


def _closing_groups(blocks: Sequence[Block], first: int) -> Iterator[Blocks]:
    """The elements at the end that hold little but closing statements and pay."""
    sizes = Counter[tuple[int, int]]()
    for block in blocks:
        sizes[block.field, block.group] += len(block.text)
    body = max(sizes, key=lambda group: sizes[group], default=None)
    for group, members in groupby(reversed(blocks[first:]), key=lambda b: (b.field, b.group)):
        last = tuple(members)
        closing = [
            b
            for b in last
            if words_for("pay").search(b.text) or words_for("closing").search(b.text)
        ]
        if group == body or 2 * _size(closing) <= _size(last):
            return
        yield last


def _is_closing(block: Block) -> bool:
    return measure(block.text) >= _CLOSING_BYTES and bool(words_for("closing").search(block.text))
