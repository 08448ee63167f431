"""`penstock worker`: processes what is due, in this process, without Prefect."""

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from entrypoints.cli.output import errors, log_to_screen
from penstock.documents import Stage
from penstock.errors import StoreUnavailable, UsageError
from penstock.settings import load_settings
from penstock.store.retry import retry_while_unavailable

if TYPE_CHECKING:
    from penstock.worker import ExtractionWorker

LINE_SECONDS = 10.0
DRAIN_LOOK_SECONDS = 0.2
# Large enough to keep parsers busy, small enough to be finished soon after a stop.
MOST_TOGETHER = 25


def worker(
    threads: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="Threads, each with a child. Default: cores."),
    ] = None,
    stage: Annotated[
        str,
        typer.Option(help="all, or stages separated by commas: text, extract, embed."),
    ] = "all",
    drain: Annotated[
        bool, typer.Option("--drain", help="End once nothing is due or waits for a retry.")
    ] = False,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that jobs under way may take after a stop.")
    ] = 60.0,
) -> None:
    """Process what is due until stopped. Ctrl-C or SIGTERM finishes the jobs under way."""
    from entrypoints.cli.health import HealthServer
    from penstock.worker import Database, ExtractionWorker, register_signal_handlers

    chosen = _stages(stage)
    settings = load_settings()
    polled = settings.embedding if chosen == [Stage.EMBED] else settings.extraction
    log_to_screen()
    with retry_while_unavailable(Database)(settings.database_url) as db:
        found = ExtractionWorker(
            db,
            num_workers=threads or settings.text_processes,
            extraction_timeout=settings.text_timeout_seconds,
            heartbeat_interval=settings.heartbeat_seconds,
            poll_interval=polled.worker_poll_interval,
            stages=chosen,
            batch_size=min(MOST_TOGETHER, settings.batch_size),
            all_tenants=True,
        )
        found.on(
            "job_failed",
            lambda job, error: _print(f"job {job.id} ({job.stage}) failed for good: {error}"),
        )
        register_signal_handlers(found, timeout=grace)
        retry_while_unavailable(found.start)()
        port, fault = settings.extraction.healthcheck_port, None
        try:
            health = HealthServer(port, found.find_fault, folders=settings.folders)
            with health if port else nullcontext():
                _print(
                    f"working on {', '.join(chosen)} with {found.num_workers} threads;"
                    " Ctrl-C to stop"
                )
                if drain:
                    fault = _drain(found)
                else:
                    _watch(found)
        finally:
            # Its threads outlive the main one, but the pools they use end with it.
            found.stop(grace)
        _print(f"stopped: {_figures(found)}")
    if fault:
        raise typer.Exit(1)


def _stages(names: str) -> list[Stage]:
    if names.strip() == "all":
        return list(Stage)
    try:
        return [Stage(name.strip()) for name in names.split(",")]
    except ValueError as error:
        raise UsageError(f"--stage {names}: {error}; use all, {', '.join(Stage)}") from None


def _watch(found: "ExtractionWorker") -> None:
    """Print the figures whenever they have changed, until the worker is stopped."""
    printed = ""
    while not found.wait(LINE_SECONDS):
        figures = _figures(found)
        if figures != printed:
            _print(figures)
            printed = figures


def _drain(found: "ExtractionWorker") -> str | None:
    """Wait until nothing is left; or until a fault keeps the worker from working: the fault."""
    while not found.wait(DRAIN_LOOK_SECONDS):
        fault = found.find_fault()
        if fault is not None:
            return fault
        # While the database is away it is not known: an outage is a fault, if it lasts.
        with suppress(StoreUnavailable):
            if not found.has_work():
                return None
    return None


def _figures(found: "ExtractionWorker") -> str:
    try:
        status = found.get_status()
    except StoreUnavailable as error:
        return f"waits because {error}"
    stats = status["stats"]
    parts = [f"{stats['jobs_completed']} done", f"{stats['jobs_failed']} failed"]
    parts += [f"{status['queue_depth']} waiting", f"{status['processing']} under way"]
    if status["trouble"]:
        parts.append(f"waits because {status['trouble']}")
    return ", ".join(parts)


def _print(line: str) -> None:
    errors.print(line, markup=False, highlight=False, soft_wrap=True)
