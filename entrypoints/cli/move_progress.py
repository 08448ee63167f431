"""Live progress of a move: a bar for each table on a terminal, now and then a line elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from entrypoints.cli.output import errors
from entrypoints.cli.progress import LINE_SECONDS
from penstock.store.moving_rows import Tell


@contextmanager
def shown_move() -> Iterator[Tell]:
    """Somebody to tell of the progress."""
    if not errors.is_terminal:
        yield _Lines()
        return
    columns = (TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=errors) as progress:
        yield _Bars(progress)


class _Bars:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bars: dict[str, TaskID] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        if total and what not in self._bars:
            self._bars[what] = self._progress.add_task(what, total=total)
        if total:
            self._progress.update(self._bars[what], completed=done)


class _Lines:
    def __init__(self) -> None:
        self._began = self._told = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._told >= LINE_SECONDS:
            self._told = now
            line = f"move: {what}, {done} of {total}, {now - self._began:.0f} s"
            errors.print(line, highlight=False)
