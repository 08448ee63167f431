"""`penstock worker`: works on whatever is due, in this process, without Prefect."""

import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from entrypoints.cli.output import errors
from penstock.documents import Stage
from penstock.errors import StoreUnavailable, UsageError
from penstock.settings import Settings, load_settings
from penstock.store.patience import until_back

if TYPE_CHECKING:
    from penstock.worker import ExtractionWorker, Job

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
    """Work on whatever is due until stopped. Ctrl-C or SIGTERM finishes the jobs under way."""
    from penstock.worker import Database, ExtractionWorker, register_signal_handlers
    from penstock.worker.health import HealthServer

    chosen = _stages(stage)
    settings = load_settings()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    with until_back(lambda: Database(settings.database_url)) as db:
        found = ExtractionWorker(
            db,
            num_workers=threads or settings.text_processes,
            extraction_timeout=settings.text_timeout_seconds,
            heartbeat_interval=settings.heartbeat_seconds,
            poll_interval=_poll_seconds(settings, chosen),
            stages=chosen,
            batch_size=min(MOST_TOGETHER, settings.batch_size),
            all_tenants=True,
        )
        found.on("job_failed", _print_failure)
        register_signal_handlers(found, timeout=grace)
        until_back(found.start)
        port = settings.extraction.healthcheck_port
        try:
            with HealthServer(port, found.find_fault) if port else nullcontext():
                _say(
                    f"working on {', '.join(chosen)} with {found.num_workers} threads;"
                    " Ctrl-C to stop"
                )
                trouble = _drain(found) if drain else _watch(found)
        finally:
            # Its threads outlive the main one, without the pools that end with it.
            found.stop(grace)
        _say(f"stopped: {_figures(found)}")
    if trouble:
        raise typer.Exit(1)


def _stages(names: str) -> list[Stage]:
    if names.strip() == "all":
        return list(Stage)
    try:
        return [Stage(name.strip()) for name in names.split(",")]
    except ValueError as error:
        raise UsageError(f"--stage {names}: {error}; use all, {', '.join(Stage)}") from None


def _poll_seconds(settings: Settings, stages: list[Stage]) -> float:
    if stages == [Stage.EMBED]:
        return settings.embedding.worker_poll_interval
    return settings.extraction.worker_poll_interval


def _watch(found: "ExtractionWorker") -> str | None:
    """A line now and then, as long as there is something new to say."""
    said = ""
    while not found.wait(LINE_SECONDS):
        figures = _figures(found)
        if figures != said:
            _say(figures)
            said = figures
    return None


def _drain(found: "ExtractionWorker") -> str | None:
    """Until nothing is left, or something keeps the worker from it: what that is."""
    while not found.wait(DRAIN_LOOK_SECONDS):
        trouble = found.find_fault()
        if trouble is not None or _is_done(found):
            return trouble
    return None


def _is_done(found: "ExtractionWorker") -> bool:
    """Not while the database cannot be asked: that it is away is a fault, if it lasts."""
    try:
        return not found.has_work()
    except StoreUnavailable:
        return False


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


def _print_failure(job: "Job", error: str) -> None:
    _say(f"job {job.id} ({job.stage}) failed for good: {error}")


def _say(line: str) -> None:
    errors.print(line, markup=False, highlight=False, soft_wrap=True)
