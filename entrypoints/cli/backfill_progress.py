"""Live progress of a backfill, read from the database."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from entrypoints.cli.output import errors
from entrypoints.cli.progress import LINE_SECONDS, LOOK_SECONDS
from penstock.backfill.record import count_own, find_active
from penstock.backfill.selection import Selection
from penstock.errors import PenstockError
from penstock.store.database import Database


@contextmanager
def shown_backfill(database: Database, selection: Selection) -> Iterator[None]:
    """A bar on a terminal; a line every few seconds elsewhere."""
    over = threading.Event()
    show = _show_bar if errors.is_terminal else _show_lines
    watcher = threading.Thread(target=show, args=(database, selection, over), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _show_bar(database: Database, selection: Selection, over: threading.Event) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=errors) as progress:
        bar = progress.add_task("backfill", total=None)
        while not over.wait(LOOK_SECONDS):
            done, enqueued = _look(database, selection)
            progress.update(bar, total=enqueued or None, completed=done)


def _show_lines(database: Database, selection: Selection, over: threading.Event) -> None:
    started = time.monotonic()
    while not over.wait(LINE_SECONDS):
        done, enqueued = _look(database, selection)
        seconds = time.monotonic() - started
        errors.print(
            f"backfill: {done} of {enqueued} documents so far, {seconds:.0f} s", highlight=False
        )


def _look(database: Database, selection: Selection) -> tuple[int, int]:
    """Documents that are done, and that were put to work."""
    try:
        with database.read() as tx:
            found = find_active(tx, selection)
            if found is None:
                return 0, 0
            return found.enqueued - count_own(tx, found.id), found.enqueued
    except PenstockError:
        # The flow will say what is wrong with the database.
        return 0, 0
