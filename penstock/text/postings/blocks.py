"""The body of a posting as blocks: headings, list items and paragraphs, in reading order."""

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.text.html import BLOCKS, HEADINGS, SKIPPED, find_hidden, parse_tree
from penstock.text.postings.headings import Kind, heading_kind

# Ranks of headings: 1 to 6 are h1 to h6; a line that only looks like a heading is below them.
LOOKS_LIKE_HEADING = 7
_HEADING_CHARS = 120
_ITEM_CHARS = 800

_TAG = re.compile(r"<[a-zA-Z/][^<>]*>")
_ESCAPED_TAG = re.compile(r"&(amp;)*lt;/?[a-zA-Z]")
_BULLET = re.compile(r"^(?:[-–—*•·●▪◦‣∙○■□➢➤►▶✓✔→※]|\(?\d{1,2}[.)])\s+(?=\S)|^[•●▪◦‣➢✓✔·](?=\w)")
_INLINE_BULLET = re.compile(r"\s+(?=[•●▪◦‣➢✓✔]\s)")
_BOLD_STYLE = re.compile(r"font-weight\s*:\s*(bold|[6-9]00)")
_TITLE_CLASS = re.compile(
    r"(^|[-_ ])(sub)?(title|heading|headline|header)s?($|[-_ ])", re.IGNORECASE
)
# Page builders put it around every text.
_INVISIBLE = "\u200b"
_EMPHASIS = frozenset({"b", "strong", "u"})
_LONG_CHARS = 500
_INLINE_HEADING = re.compile(r"(?<=[.!?;])\s+([^\W\d_][^.!?;:]{2,40}):\s+")
_GROUPS = frozenset(
    (
        *("article", "aside", "body", "dd", "details", "div", "dl", "fieldset", "form", "main"),
        *("section", "table", "tbody", "td", "tr"),
    )
)
# Code holds data for scripts, labels are parts of forms.
TEMPLATES = ("template", "noscript")
_SKIPPED = SKIPPED | {"code", "input", "label"}


@dataclass(frozen=True, slots=True)
class Block:
    """One line of a posting, and what its markup says about it."""

    text: str
    rank: int = 0
    """0 is no heading; otherwise the smaller, the more important."""
    item: bool = False
    group: int = 0
    """Blocks with the same number lie in the same element."""
    linked: bool = False
    """All of it is a link, as in menus."""
    markup: str = ""
    """The element that it fills, and its classes."""
    field: int = 0
    """Which field of structured data it comes from."""
    kind: Kind = Kind.UNKNOWN
    """What that field is about."""

    def __str__(self) -> str:
        return f"- {self.text}" if self.item else self.text


Blocks = tuple[Block, ...]


def join_blocks(blocks: Iterable[Block]) -> str:
    """The blocks as text, one a line."""
    return "\n".join(map(str, blocks))


def read_blocks(text: str) -> list[Block]:
    """The blocks of a text that may be HTML, also escaped once or twice."""
    for _ in range(2):
        if _ESCAPED_TAG.search(text) and not _TAG.search(text):
            text = html.unescape(text)
    if not _TAG.search(text):
        rows = html.unescape(text).splitlines()
        lines = (line for row in rows for line in _INLINE_BULLET.split(row))
        found = [block for line in lines if (block := _make_block(" ".join(line.split())))]
        return [part for block in found for part in _break(block)]
    tree = parse_tree(f"<html><body>{text}</body></html>")
    return read_tree(tree, frozenset(find_hidden(tree)))


def _break(block: Block) -> Iterator[Block]:
    """A long paragraph that lost its lines, broken at the headings inside it."""
    place = 0
    for found in _INLINE_HEADING.finditer(block.text) if len(block.text) > _LONG_CHARS else ():
        if heading_kind(found[1]) is not Kind.UNKNOWN:
            yield replace(block, text=block.text[place : found.start()])
            yield Block(found[1], LOOKS_LIKE_HEADING)
            place = found.end()
    yield replace(block, text=block.text[place:])


def _make_block(
    text: str, rank: int = 0, item: bool = False, group: int = 0, linked: bool = False
) -> Block | None:
    bare = _BULLET.sub("", text)
    item = item or bare != text
    if not bare or not any(map(str.isalnum, bare)):
        return None
    if item or len(bare) > _HEADING_CHARS:
        rank = 0
    elif not rank and bare.isupper() and len(bare) > 3:
        rank = LOOKS_LIKE_HEADING
    return Block(bare, rank, item, group, linked)


def read_tree(
    root: Any,
    skipped: frozenset[Any],
    *,
    templates: bool = False,
    labels: Mapping[Any, str] | None = None,
) -> list[Block]:
    """The blocks under an element, without those under the skipped ones.

    `templates` are read only on request; `labels` are the headings that elements have elsewhere.
    """
    from lxml import etree  # type: ignore[import-untyped]

    reader = _Reader(labels or {})
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        if event == "start" and (_is_skipped(element, templates) or element in skipped):
            walk.skip_subtree()
            reader.skipping = element
        elif event == "start":
            reader.open(element)
        else:
            reader.close(element)
    reader.flush()
    return reader.blocks


class _Reader:
    """Collects the text of one line at a time, with the emphasis it carries."""

    def __init__(self, labels: Mapping[Any, str]) -> None:
        self.blocks: list[Block] = []
        self._labels = labels
        self.skipping: Any = None
        self._pieces: list[str] = []
        self._open: list[tuple[Any, int, bool]] = []
        """Elements, each with its number and whether it is an item of a list."""
        self._opened = 0
        self._bold = self._verbatim = 0
        self._links = 0
        self._plain_chars = 0
        self._unlinked_chars = 0

    def open(self, element: Any) -> None:
        if element.tag in BLOCKS:
            self.flush()
            if label := self._labels.get(element):
                self.blocks.append(Block(label, LOOKS_LIKE_HEADING, group=self._opened + 1))
            self._opened += 1
            is_item = element.tag == "li" and _is_item(element)
            self._open.append((element, self._opened, is_item))
        self._bold += _is_bold(element)
        self._links += element.tag == "a"
        self._verbatim += element.tag == "pre"
        self._add(element.text)

    def close(self, element: Any) -> None:
        if element is self.skipping:
            self.skipping = None
        else:
            if element.tag in BLOCKS:
                self.flush()
                self._open.pop()
            self._bold -= _is_bold(element)
            self._links -= element.tag == "a"
            self._verbatim -= element.tag == "pre"
        self._add(element.tail)

    def flush(self) -> None:
        if text := " ".join("".join(self._pieces).replace(_INVISIBLE, "").split()):
            item = any(is_item for *_, is_item in self._open)
            linked = not self._unlinked_chars
            if block := _make_block(text, self._rank(), item, self._group(), linked):
                if self.blocks and self.blocks[-1].text == block.text:
                    self.blocks.pop()  # the label of a part that repeats it
                self.blocks.append(replace(block, markup=self._markup()))
        self._pieces.clear()
        self._plain_chars = self._unlinked_chars = 0

    def _add(self, text: str | None) -> None:
        for place, line in enumerate((text or "").split("\n") if self._verbatim else [text]):
            if place:
                self.flush()
            self._add_line(line)

    def _add_line(self, text: str | None) -> None:
        if text:
            self._pieces.append(text)
            letters = sum(map(str.isalnum, text))
            self._plain_chars += 0 if self._bold else letters
            self._unlinked_chars += 0 if self._links else letters

    def _rank(self) -> int:
        if not self._open:
            return 0
        for element, *_ in reversed(self._open[-3:]):
            if element.tag in HEADINGS:
                return HEADINGS[element.tag]
        own = self._open[-1][0]
        titled = own.tag in ("dt", "summary") or _TITLE_CLASS.search(own.get("class") or "")
        return LOOKS_LIKE_HEADING if titled or not self._plain_chars else 0

    def _markup(self) -> str:
        own = self._open[-1][0] if self._open else None
        return "" if own is None else f"{own.tag} {own.get('class') or ''}"

    def _group(self) -> int:
        """The innermost group element that holds more than this line."""
        groups = [(element, number) for element, number, _ in self._open if element.tag in _GROUPS]
        if groups and not any(child.tag in BLOCKS for child in groups[-1][0]):
            groups.pop()
        return groups[-1][1] if groups else 0


def _is_skipped(element: Any, templates: bool) -> bool:
    """A button is skipped, except in a heading: that of a section that folds out."""
    if element.tag == "button":
        return element.getparent().tag not in HEADINGS
    if element.tag in TEMPLATES:
        return not templates
    return element.tag in _SKIPPED


def _is_bold(element: Any) -> bool:
    style = element.get("style")
    return element.tag in _EMPHASIS or bool(style and _BOLD_STYLE.search(style))


def _is_item(element: Any) -> bool:
    """Whether it is one item; some pages have whole sections with headings in list items."""
    if any(child.tag in HEADINGS for child in element.iter()):
        return False
    return sum(map(len, element.itertext())) <= _ITEM_CHARS
