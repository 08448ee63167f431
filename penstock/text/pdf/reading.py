"""One page read closely: its tables as rows, in their place among the page's other lines."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.text.pdf.lines import Line, find_lines, join_lines, sort_lines
from penstock.text.pdf.pages import FastPage
from penstock.text.pdf.tables import Owned, Table, find_tables

if TYPE_CHECKING:
    from pdfplumber.page import Page

_KEPT_SHARE = 0.9
_DOUBLED_SHARE = 1.15
_TORN_SHARE = 1.5
_UNKNOWN_GLYPH = re.compile(r"\(cid:\d+\)")


def read_closely(page: "Page", fast: FastPage) -> str | None:
    """The page's text when it is better than the fast one, else nothing."""
    page = _without_doubles(page, fast)
    owned: list[Owned] = find_tables(page) if fast.grid else [(char, None) for char in page.chars]
    if not (fast.disordered or fast.poor or any(table for _, table in owned)):
        return None
    text = _UNKNOWN_GLYPH.sub("", _arrange(owned, fast.disordered))
    return text if _is_better(text, fast) else None


def _without_doubles(page: "Page", fast: FastPage) -> "Page":
    """Bold made by printing twice: pdfium leaves out the second print, pdfplumber does not."""
    printed = sum(not char["text"].isspace() for char in page.chars)
    if printed > _DOUBLED_SHARE * len("".join(fast.text.split())) and not fast.poor:
        return page.dedupe_chars()
    return page


def _is_better(text: str, fast: FastPage) -> bool:
    """Letters were lost where pdfplumber knows fewer glyphs, words torn where it reads sideways."""
    if fast.poor:
        return _count_letters(text) > _count_letters(fast.text)
    words = len(text.replace(" | ", " ").split())
    torn = words > _TORN_SHARE * len(fast.text.split())
    return not torn and _count_letters(text) >= _KEPT_SHARE * _count_letters(fast.text)


def _count_letters(text: str) -> int:
    return sum(map(str.isalnum, text))


def _arrange(owned: Sequence[Owned], disordered: bool) -> str:
    loose = [char for char, table in owned if table is None]
    tables = list(dict.fromkeys(table for _, table in owned if table is not None))
    lines = find_lines(loose)
    rises = sum(after.bottom < before.top for before, after in pairwise(lines))
    if disordered and rises * 10 >= len(lines) * 3:
        return _merge(sort_lines(lines), tables)
    # Columns rise from foot to head: there, only the order of writing says where a table belongs.
    return _follow_writing(owned) if rises else _merge(lines, tables)


def _merge(lines: Sequence[Line], tables: Sequence[Table]) -> str:
    """Lines from top to bottom, each table before the first line below its top."""
    pieces: list[str] = []
    waiting = sorted(tables, key=lambda table: table.box[1], reverse=True)
    for line in lines:
        while waiting and waiting[-1].box[1] < line.top:
            pieces.append(waiting.pop().text)
        pieces.append(line.text)
    return join_lines([*pieces, *(table.text for table in reversed(waiting))])


def _follow_writing(owned: Sequence[Owned]) -> str:
    """Each table where its first character was written."""
    pieces: list[str] = []
    loose = []
    placed: set[Table] = set()
    for char, table in owned:
        if table is None:
            loose.append(char)
        elif table not in placed:
            placed.add(table)
            pieces += (line.text for line in find_lines(loose))
            pieces.append(table.text)
            loose = []
    return join_lines([*pieces, *(line.text for line in find_lines(loose))])
