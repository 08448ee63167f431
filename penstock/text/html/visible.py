"""All the text of a page that a reader would see, one block per line."""

import re
from typing import Any

from penstock.text.html.tables import CELLS, is_line
from penstock.text.html.tags import BLOCKS, UNREAD
from penstock.text.html.tree import is_hidden

_UNREAD = UNREAD | {"button"}
# What frames every page of a site. A header may also stand in an article, where it is content.
_FRAME = frozenset({"nav", "footer"})
_FRAME_ROLES = frozenset({"navigation", "banner", "contentinfo"})
# A private-use character: unlike a line end, it cannot be part of the page's own white space.
_BREAK = "\ue000"
# What is left of `<li><p>…` when the paragraph starts a line of its own.
_LONE_BULLETS = re.compile(r"^(-\n)+", re.MULTILINE)


def visible_lines(body: Any) -> str:
    """The text inside the site's frame, or all of it on a page that has nothing else.

    Where all is hidden, a script was to show it.
    """
    return (
        _Lines(body, framed=True).read()
        or _Lines(body, framed=False).read()
        or _Lines(body, framed=False, shown=False).read()
    )


class _Lines:
    """One walk over a page."""

    def __init__(self, body: Any, *, framed: bool, shown: bool = True) -> None:
        self._body = body
        self._framed = framed
        self._shown = shown
        self._pieces: list[str] = []
        self._row: Any = None
        """The row being read, when it is one line of a table."""
        self._verbatim: Any = None
        """The element being read whose line ends count."""

    def read(self) -> str:
        from lxml import etree  # type: ignore[import-untyped]

        walk = etree.iterwalk(self._body, events=("start", "end"))
        for event, element in walk:
            if event == "end":
                self._leave(element)
            elif self._is_unread(element):
                walk.skip_subtree()
            else:
                self._enter(element)
        lines = (" ".join(piece.split()) for piece in "".join(self._pieces).split(_BREAK))
        return _LONE_BULLETS.sub("- ", "\n".join(filter(None, lines))).removesuffix("\n-")

    def _is_unread(self, element: Any) -> bool:
        tag = element.tag
        return (
            tag in _UNREAD
            or (self._shown and is_hidden(element))
            or (self._framed and self._frames_page(tag, element))
        )

    def _frames_page(self, tag: str, element: Any) -> bool:
        if tag in _FRAME or element.get("role") in _FRAME_ROLES:
            return True
        return tag == "header" and self._heads_page(element)

    def _heads_page(self, header: Any) -> bool:
        parent = header.getparent()
        return parent is self._body or (parent.tag == "div" and parent.getparent() is self._body)

    def _enter(self, element: Any) -> None:
        tag = element.tag
        if tag == "tr" and self._row is None and is_line(element):
            self._pieces.append(_BREAK)
            self._row = element
        elif tag in BLOCKS:
            self._divide(tag, element)
        if tag == "li":
            self._pieces.append("- ")
        if tag == "pre" and self._verbatim is None:
            self._verbatim = element
        self._write(element.text)

    def _leave(self, element: Any) -> None:
        if element is self._row:
            self._row = None
        if element is self._verbatim:
            self._verbatim = None
        if element.tag in BLOCKS:
            self._pieces.append(_BREAK if self._row is None else " ")
        elif element.tag == "span" and not element.tail:
            # Styles keep such neighbours apart where the source does not.
            self._pieces.append(" " if element.getnext() is not None else "")
        if element is not self._body:
            self._write(element.tail)

    def _divide(self, tag: str, element: Any) -> None:
        if self._row is None:
            self._pieces.append(_BREAK)
        else:
            between = tag in CELLS and element.getprevious() is not None
            self._pieces.append(" | " if between else " ")

    def _write(self, text: str | None) -> None:
        if text:
            self._pieces.append(text.replace("\n", _BREAK) if self._verbatim is not None else text)
