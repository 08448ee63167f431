"""The little Markdown that reference pages need."""

from collections.abc import Iterable, Sequence

NOTE = "<!-- Written from the code by `make reference`: change the code, not this page. -->"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table, as lines."""
    lines = [_row(columns), "|---" * len(columns) + "|"]
    return [*lines, *[_row(row) for row in rows]]


def code(text: str) -> str:
    return f"`{text}`"


def page(lines: Iterable[str]) -> str:
    """A whole file."""
    return "\n".join(lines).strip() + "\n"


def _row(cells: Sequence[str]) -> str:
    # A bar would end the cell, also inside backticks.
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
