"""Live progress of a run, read from the database: it also works for runs of other processes."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from entrypoints.cli.output import errors
from penstock.documents import Stage
from penstock.errors import PenstockError
from penstock.runs.lifecycle import read_run
from penstock.runs.report import RunReport, report_run
from penstock.runs.vocabulary import DocumentStatus
from penstock.store.database import Database

LOOK_SECONDS = 0.4
LINE_SECONDS = 5.0


@contextmanager
def shown_progress(database: Database, run_id: int, label: str) -> Iterator[None]:
    """Bars on a terminal; a line every few seconds elsewhere."""
    over = threading.Event()
    show = _show_bars if errors.is_terminal else _show_lines
    watcher = threading.Thread(target=show, args=(database, run_id, label, over), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def watch_progress(database: Database, run_id: int, label: str) -> None:
    """Show the progress of somebody else's run until it ends."""
    with shown_progress(database, run_id, label):
        while True:
            with database.read() as tx:
                if not read_run(tx, run_id).status.active:
                    return
            time.sleep(LOOK_SECONDS)


def _show_bars(database: Database, run_id: int, label: str, over: threading.Event) -> None:
    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn())
    clock = (TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, *clock, console=errors) as progress:
        documents = progress.add_task(label, total=None, left="")
        bars = {stage: progress.add_task(f"  {stage}", total=None, left="") for stage in Stage}
        while True:
            last = over.is_set()
            report = _look(database, run_id)
            if report is not None:
                pending = report.counts[DocumentStatus.PENDING]
                done = report.documents - pending
                left = "" if report.eta_seconds is None else f"{report.eta_seconds:.0f} s left"
                progress.update(documents, total=report.documents, completed=done, left=left)
                for stage, bar in bars.items():
                    items = report.stages[stage]
                    total = items.total or (0 if last else None)
                    progress.update(bar, total=total, completed=items.done + items.failed)
            if last:
                return
            over.wait(LOOK_SECONDS)


def _show_lines(database: Database, run_id: int, label: str, over: threading.Event) -> None:
    started = time.monotonic()
    while not over.wait(LINE_SECONDS):
        report = _look(database, run_id)
        if report is not None:
            done = report.documents - report.counts[DocumentStatus.PENDING]
            seconds = time.monotonic() - started
            left = "" if report.eta_seconds is None else f", {report.eta_seconds:.0f} s left"
            shown = f"{done} of {report.documents} documents, {seconds:.0f} s{left}"
            errors.print(f"{label}: {shown}", highlight=False)


def _look(database: Database, run_id: int) -> RunReport | None:
    try:
        with database.read() as tx:
            return report_run(tx, run_id)
    except PenstockError:
        # The run itself will say what is wrong with the database.
        return None
