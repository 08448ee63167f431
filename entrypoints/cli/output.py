"""How commands speak: people on the screen, programs in JSON on standard output."""

import json
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

console = Console()
# Progress and problems go to standard error, so that standard output stays what was asked for.
errors = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Tenant = Annotated[
    str | None, typer.Option("--tenant", help="Whose documents; default PENSTOCK_TENANT.")
]


def print_json(value: Any) -> None:
    """One JSON value on standard output."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def print_error(message: str) -> None:
    """What went wrong, on standard error."""
    errors.print(Text.assemble(("error: ", "bold red"), message))


def explain_crash(home: Path, what: str, error: Exception) -> str:
    """What to say about an error that nobody foresaw; its traceback goes to a file."""
    log = home / "penstock.log"
    with log.open("a", encoding="utf-8") as lines:
        traceback.print_exception(error, file=lines)
    return (
        f"{what} stopped: {type(error).__name__}: {error} (details in {log}). "
        "The same command goes on where it stopped."
    )


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None
) -> None:
    """A table whose cells are never read as markup."""
    table = Table(*columns, title=title, title_justify="left", header_style="bold")
    for row in rows:
        table.add_row(*[cell if isinstance(cell, Text) else Text(_plain(cell)) for cell in row])
    console.print(table)


def print_pairs(pairs: Iterable[tuple[str, Any]]) -> None:
    """Names and values under each other."""
    grid = Table.grid(padding=(0, 2))
    for name, value in pairs:
        grid.add_row(Text(name, style="bold"), Text(_plain(value)))
    console.print(grid)


def _plain(value: Any) -> str:
    return "–" if value is None or value == "" else str(value)
