"""Tables of a page: those that are tables, and those that only lay the page out."""

from typing import Any

CELLS = ("td", "th")
_BLOCKS = ("div", "p", "ul", "ol", "table", "h1", "h2", "h3", "h4", "section", "article", "pre")


def is_line(row: Any) -> bool:
    """A row of short cells, which reads as one line."""
    cells = [cell for cell in row if cell.tag in CELLS]
    return len(cells) > 1 and not any(map(_holds_blocks, cells))


def unwrap_layout_tables(content: Any) -> None:
    """Turn tables whose cells are parts of a page into plain parts."""
    for table in list(content.iter("table")):
        if any(map(_holds_blocks, table.iter(*CELLS))):
            for part in _own_parts(table):
                part.tag = "div"


def _holds_blocks(cell: Any) -> bool:
    blocks = cell.iter(*_BLOCKS)
    return next(blocks, None) is not None and next(blocks, None) is not None


def _own_parts(table: Any) -> list[Any]:
    """The table, its rows and its cells, but no table inside them."""
    rows = [row for row in table.iter("tr") if next(row.iterancestors("table")) is table]
    return [table, *rows, *(cell for row in rows for cell in row if cell.tag in CELLS)]
