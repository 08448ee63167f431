"""Live progress: bars on a terminal, a line now and then elsewhere.

That of runs and backfills is read from the database, so that those of other processes can be
watched too.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from entrypoints.cli.output import errors
from penstock.backfill.backfill import count_own, find_active, undecided_canaries
from penstock.backfill.selection import Selection
from penstock.documents import Stage
from penstock.errors import PenstockError
from penstock.runs.lifecycle import read_run
from penstock.runs.report import report_run
from penstock.runs.run import DocumentStatus
from penstock.store.database import Database, Tx

LOOK_SECONDS = 0.4
LINE_SECONDS = 5.0
# Of the time of a large run, whose documents take a while to count.
MOST_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Reading:
    """How far something is."""

    done: int
    total: int
    eta_seconds: float | None = None
    stages: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Done and total of each further bar."""

    @property
    def left(self) -> str:
        return "" if self.eta_seconds is None else f"{self.eta_seconds:.0f} s left"


Read = Callable[[Tx], Reading | None]


@contextmanager
def shown_run(database: Database, run_id: int) -> Iterator[None]:
    """Show the progress of a run meanwhile."""

    def read(tx: Tx) -> Reading:
        report = report_run(tx, run_id)
        return Reading(
            report.documents - report.counts[DocumentStatus.PENDING],
            report.documents,
            report.eta_seconds,
            {
                stage: (found.done + found.failed, found.total)
                for stage, found in report.stages.items()
            },
        )

    with _shown(database, f"run {run_id}", read, list(Stage)):
        yield


def watch_run(database: Database, run_id: int) -> None:
    """Show the progress of a run, of any process, until it ends."""
    with shown_run(database, run_id):
        while True:
            with database.read() as tx:
                if not read_run(tx, run_id).status.active:
                    return
            time.sleep(LOOK_SECONDS)


@contextmanager
def shown_backfill(database: Database, selection: Selection) -> Iterator[None]:
    """Show the progress of the backfill of this selection meanwhile."""

    def read(tx: Tx) -> Reading | None:
        found = find_active(tx, selection)
        if found is None:
            return None
        return Reading(found.enqueued - count_own(tx, found.id), found.enqueued)

    with _shown(database, "backfill", read):
        yield


@contextmanager
def shown_canary(database: Database, selection: Selection) -> Iterator[None]:
    """Show the progress of the canary of this selection meanwhile."""
    from penstock.backfill.canary import count_done

    def read(tx: Tx) -> Reading | None:
        undecided = undecided_canaries(tx, selection.tenant_id)
        found = next((one for one in undecided if one.selection.key == selection.key), None)
        return None if found is None else Reading(*count_done(tx, found.id))

    with _shown(database, "canary", read):
        yield


@contextmanager
def shown_move() -> Iterator[Callable[[str, int, int], None]]:
    """A function to call with a table, and how many of its rows are copied."""
    if not errors.is_terminal:
        yield _move_lines()
        return
    with _progress() as progress:
        bars: dict[str, TaskID] = {}

        def update(table: str, done: int, total: int) -> None:
            if not total:
                return
            if table not in bars:
                bars[table] = progress.add_task(table, total=total, left="")
            progress.update(bars[table], completed=done)

        yield update


@contextmanager
def shown_documents(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to call with how many documents are done."""
    if not errors.is_terminal:
        count = _line_printer()
        yield lambda done: count(f"{label}: {done} of {total} documents")
        return
    with _progress() as progress:
        bar = progress.add_task(label, total=total, left="")
        yield lambda done: progress.update(bar, completed=done)


def _line_printer() -> Callable[[str], None]:
    """Prints a line now and then, with the seconds so far."""
    began = printed = time.monotonic()

    def show(line: str) -> None:
        nonlocal printed
        now = time.monotonic()
        if now - printed >= LINE_SECONDS:
            printed = now
            _print_line(f"{line}, {now - began:.0f} s")

    return show


def _move_lines() -> Callable[[str, int, int], None]:
    show = _line_printer()
    return lambda table, done, total: show(f"move: {table}, {done} of {total}")


@contextmanager
def _shown(
    database: Database, label: str, read: Read, stages: Sequence[str] = ()
) -> Iterator[None]:
    over = threading.Event()

    def read_now() -> Reading | None:
        try:
            with database.read() as tx:
                return read(tx)
        except PenstockError:
            return None  # the flow reports what is wrong with the database

    def show() -> None:
        if errors.is_terminal:
            _show_bars(label, stages, read_now, over)
        else:
            _show_lines(label, read_now, over)

    watcher = threading.Thread(target=show, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _show_bars(
    label: str, stages: Sequence[str], read: Callable[[], Reading | None], over: threading.Event
) -> None:
    with _progress() as progress:
        main = progress.add_task(label, total=None, left="")
        bars = {stage: progress.add_task(f"  {stage}", total=None, left="") for stage in stages}
        while True:
            last = over.is_set()
            started = time.monotonic()
            if found := read():
                # A bar without a total moves to and fro.
                empty = 0 if last else None
                progress.update(
                    main, total=found.total or empty, completed=found.done, left=found.left
                )
                for stage, (done, total) in found.stages.items():
                    progress.update(bars[stage], total=total or empty, completed=done)
            if last:
                return
            took = time.monotonic() - started
            over.wait(max(LOOK_SECONDS, took / MOST_SHARE))


def _show_lines(label: str, read: Callable[[], Reading | None], over: threading.Event) -> None:
    started = time.monotonic()
    while not over.wait(LINE_SECONDS):
        if found := read():
            seconds = time.monotonic() - started
            left = f", {found.left}" if found.left else ""
            _print_line(f"{label}: {found.done} of {found.total} documents, {seconds:.0f} s{left}")


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description:<18}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=errors,
    )


def _print_line(line: str) -> None:
    errors.print(line, highlight=False)
