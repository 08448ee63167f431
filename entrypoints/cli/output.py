"""Output of commands: tables and texts for people, JSON for programs."""

import json
import logging
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from penstock.terminal import OBEYED, as_text


class SafeConsole(Console):
    """A console that removes control characters from texts, which come from documents."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:  # rich's own, such as moving a progress bar's line
                yield segment
            else:
                yield Segment(as_text(segment.text), segment.style)


class SafeFormatter(logging.Formatter):
    """The same for log lines, which name documents and repeat what went wrong with them."""

    def format(self, record: logging.LogRecord) -> str:
        return as_text(super().format(record))


def log_to_screen() -> None:
    """Log lines on standard error, for commands that go on until they are stopped."""
    handler = logging.StreamHandler()
    handler.setFormatter(SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


# Neither reads text as markup unless asked to: a title may hold a link, or a broken tag.
console = SafeConsole(markup=False)
# Progress and problems go to standard error, so that standard output stays what was asked for.
errors = SafeConsole(markup=False, stderr=True)

# Rows of a table without --limit: laying out 50,000 takes half a minute.
ON_SCREEN = 100
# Ids are 64-bit.
LARGEST_ID = 2**63 - 1

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Tenant = Annotated[
    str | None, typer.Option("--tenant", help="Whose documents; default PENSTOCK_TENANT.")
]


def print_json(value: Any) -> None:
    """One JSON value on standard output."""
    typer.echo(as_json(value, indent=2))


def as_json(value: Any, indent: int | None = None) -> str:
    """What a terminal would obey is escaped, and read back as it was."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return OBEYED.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def print_error(message: str) -> None:
    """What went wrong, on standard error."""
    errors.print(Text.assemble(("error: ", "bold red"), message))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None
) -> None:
    """A table whose cells are never read as markup."""
    table = Table(*columns, title=title, title_justify="left", header_style="bold")
    for row in rows:
        table.add_row(*[_cell(value) for value in row])
    console.print(table)


def print_cut(shown: int, command: str) -> None:
    """A table does not show everything there is: which command does."""
    console.print(f"showing the first {shown}; for all: {command}", highlight=False)


def print_pairs(pairs: Iterable[tuple[str, Any]]) -> None:
    """Names and values under each other."""
    grid = Table.grid(padding=(0, 2))
    for name, value in pairs:
        grid.add_row(_cell(Text(name, style="bold")), _cell(value))
    console.print(grid)


def _cell(value: Any) -> Text:
    cell = value if isinstance(value, Text) else Text(_plain(value))
    # Before it is measured: what a terminal would obey has no width, what replaces it has.
    cell.plain = as_text(cell.plain)
    return cell


def _plain(value: Any) -> str:
    return "–" if value is None or value == "" else str(value)
