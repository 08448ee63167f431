"""`penstock maintain`: forget what is old and give back the room, without Prefect."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from entrypoints.cli.output import Json, console, print_error, print_json, print_table
from penstock.app import open_app
from penstock.maintenance.retention import Maintained, MaintenanceStep, in_short


def maintain(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be deleted.")
    ] = False,
    json: Json = False,
) -> None:
    """Delete old logs, old jobs and unused raw bytes, and compact the database.

    How long things are kept: the settings PENSTOCK_KEEP_…_DAYS of `penstock config`.
    """
    with open_app() as app:
        done = app.maintenance.run(dry_run=dry_run)
    if json:
        print_json(done.as_json())
    else:
        _print(done)
    raise typer.Exit(1 if done.failures else 0)


def _print(done: Maintained) -> None:
    columns = ("part", "objects", "size", "seconds", "note")
    print_table(columns, [row for part in done.parts for row in _rows(part)])
    for failure in done.failures:
        print_error(failure)
    if done.dry_run:
        console.print("this was a dry run: nothing was deleted", highlight=False)


def _rows(part: MaintenanceStep) -> Iterator[list[Any]]:
    note = "failed" if part.error is not None else part.note
    seconds = f"{part.seconds:.1f}"
    if not part.figures:
        yield [part.name, None, None, seconds, note]
    for figure in part.figures:
        size = None if figure.bytes is None else in_short(figure.bytes)
        yield [figure.what, figure.count, size, seconds, note]
