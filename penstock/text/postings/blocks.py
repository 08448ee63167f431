"""The body of a job posting as blocks: headings, list items and paragraphs, in reading order."""

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.text.html.tags import BLOCKS, HEADINGS, UNREAD
from penstock.text.html.tree import find_hidden, parse_tree

# Ranks of headings: 1 to 6 are h1 to h6; what only looks like a heading stands below them.
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
_EMPHASIS = frozenset({"b", "strong", "u"})
_GROUPS = frozenset(
    (
        *("article", "aside", "body", "dd", "details", "div", "dl", "fieldset", "form", "main"),
        *("section", "table", "tbody", "td", "tr"),
    )
)
# Code holds data for scripts, a label what a form asks for.
_UNREAD = UNREAD | {"code", "input", "label"}


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

    def __str__(self) -> str:
        return f"- {self.text}" if self.item else self.text


def join_blocks(blocks: Iterable[Block]) -> str:
    """The blocks as text, one a line."""
    return "\n".join(map(str, blocks))


def bare_letters(blocks: Iterable[Block]) -> str:
    """Nothing but the letters and digits, to tell texts apart whatever their markup."""
    return re.sub(r"[\W_]+", "", "".join(block.text for block in blocks)).casefold()


def read_blocks(text: str) -> list[Block]:
    """The blocks of a text that may be HTML, also escaped once or twice."""
    for _ in range(2):
        if _ESCAPED_TAG.search(text) and not _TAG.search(text):
            text = html.unescape(text)
    if not _TAG.search(text):
        return _read_lines(html.unescape(text))
    tree = parse_tree(f"<html><body>{text}</body></html>")
    return list(read_tree(tree, frozenset(find_hidden(tree))))


def _read_lines(text: str) -> list[Block]:
    lines = (line for row in text.splitlines() for line in _INLINE_BULLET.split(row))
    return [block for line in lines if (block := _make_block(" ".join(line.split())))]


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


def read_tree(root: Any, skipped: frozenset[Any] = frozenset()) -> Iterator[Block]:
    """The blocks under an element, without those under the skipped ones."""
    from lxml import etree  # type: ignore[import-untyped]

    reader = _Reader()
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        if event == "start" and (_is_unread(element) or element in skipped):
            walk.skip_subtree()
            reader.skipping = element
        elif event == "start":
            yield from reader.open(element)
        else:
            yield from reader.close(element)
    yield from reader.flush()


class _Reader:
    """Collects the text of one line at a time, with the emphasis it carries."""

    def __init__(self) -> None:
        self.skipping: Any = None
        self._pieces: list[str] = []
        self._open: list[tuple[Any, int]] = []
        self._opened = 0
        self._items = 0
        self._bold = 0
        self._links = 0
        self._plain_chars = 0
        self._unlinked_chars = 0

    def open(self, element: Any) -> Iterator[Block]:
        if element.tag in BLOCKS:
            yield from self.flush()
            self._opened += 1
            self._open.append((element, self._opened))
        self._items += element.tag == "li" and _is_item(element)
        self._bold += _is_bold(element)
        self._links += element.tag == "a"
        self._add(element.text)

    def close(self, element: Any) -> Iterator[Block]:
        if element is self.skipping:
            self.skipping = None
        else:
            if element.tag in BLOCKS:
                yield from self.flush()
                self._open.pop()
            self._items -= element.tag == "li" and _is_item(element)
            self._bold -= _is_bold(element)
            self._links -= element.tag == "a"
        self._add(element.tail)

    def flush(self) -> Iterator[Block]:
        block = _make_block(
            " ".join("".join(self._pieces).split()),
            rank=self._rank(),
            item=self._items > 0,
            group=self._group(),
            linked=not self._unlinked_chars,
        )
        self._pieces.clear()
        self._plain_chars = self._unlinked_chars = 0
        if block:
            yield block

    def _add(self, text: str | None) -> None:
        if text:
            self._pieces.append(text)
            letters = sum(map(str.isalnum, text))
            self._plain_chars += 0 if self._bold else letters
            self._unlinked_chars += 0 if self._links else letters

    def _rank(self) -> int:
        if not self._open:
            return 0
        for element, _ in reversed(self._open[-3:]):
            if element.tag in HEADINGS:
                return HEADINGS[element.tag]
        own = self._open[-1][0]
        titled = own.tag in ("dt", "summary") or _TITLE_CLASS.search(own.get("class") or "")
        return LOOKS_LIKE_HEADING if titled or not self._plain_chars else 0

    def _group(self) -> int:
        """A group element that holds nothing but this line is the line itself."""
        groups = [(element, number) for element, number in self._open if element.tag in _GROUPS]
        if groups and not any(child.tag in BLOCKS for child in groups[-1][0]):
            groups.pop()
        return groups[-1][1] if groups else 0


def _is_unread(element: Any) -> bool:
    """Sections that fold out have a button in their heading; it holds the heading's words."""
    if element.tag == "button":
        return element.getparent().tag not in HEADINGS
    return element.tag in _UNREAD


def _is_bold(element: Any) -> bool:
    style = element.get("style")
    return element.tag in _EMPHASIS or bool(style and _BOLD_STYLE.search(style))


def _is_item(element: Any) -> bool:
    """Some pages keep whole sections, headings and all, in list items."""
    if any(child.tag in HEADINGS for child in element.iter()):
        return False
    return sum(map(len, element.itertext())) <= _ITEM_CHARS
