"""`penstock worker`: works on whatever is due, in this process, without Prefect."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from entrypoints.cli.output import errors
from penstock.documents import Stage
from penstock.errors import UsageError
from penstock.settings import load_settings

if TYPE_CHECKING:
    from penstock.worker import ExtractionWorker, Job

LINE_SECONDS = 10.0
# Large enough to keep parsers busy, small enough to be finished soon after a stop.
MOST_TOGETHER = 25


def worker(
    threads: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="Threads, each with a child. Default: cores."),
    ] = None,
    stages: Annotated[
        str, typer.Option(help="Stages to do, separated by commas; others are left to others.")
    ] = "text,extract,embed",
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that jobs under way may take after a stop.")
    ] = 60.0,
) -> None:
    """Work on whatever is due until stopped. Ctrl-C or SIGTERM finishes the jobs under way."""
    from penstock.worker import Database, ExtractionWorker, register_signal_handlers

    chosen = _stages(stages)
    settings = load_settings()
    with Database(settings.database_url) as db:
        found = ExtractionWorker(
            db,
            num_workers=threads or settings.text_processes,
            extraction_timeout=settings.text_timeout_seconds,
            heartbeat_interval=settings.heartbeat_seconds,
            poll_interval=settings.extraction.worker_poll_interval,
            stages=chosen,
            batch_size=min(MOST_TOGETHER, settings.batch_size),
            all_tenants=True,
        )
        found.on("job_failed", _print_failure)
        register_signal_handlers(found, timeout=grace)
        found.start()
        _say(f"working on {', '.join(chosen)} with {found.num_workers} threads; Ctrl-C to stop")
        _watch(found)
        _say(f"stopped: {_figures(found.get_status())}")


def _stages(names: str) -> list[Stage]:
    try:
        return [Stage(name.strip()) for name in names.split(",")]
    except ValueError as error:
        raise UsageError(f"--stages {names}: {error}; use {', '.join(Stage)}") from None


def _watch(found: "ExtractionWorker") -> None:
    """A line now and then, as long as there is something new to say."""
    said = ""
    while not found.wait(LINE_SECONDS):
        figures = _figures(found.get_status())
        if figures != said:
            _say(figures)
            said = figures


def _figures(status: dict[str, Any]) -> str:
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
