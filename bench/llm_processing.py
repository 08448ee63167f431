"""One drain of what is due in this process: the flow `process`, or the same without Prefect."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from unittest.mock import patch

from bench.memory import PeakMemory
from penstock.app import open_app
from penstock.pipeline.worker import Worker
from penstock.search.vectors import prepare_index
from penstock.settings import load_settings


@dataclass(slots=True)
class Moments:
    """When things happened, on the machine's monotonic clock."""

    called_at: float = 0.0
    drain_began_at: float = 0.0
    drain_ended_at: float = 0.0
    returned_at: float = 0.0
    drain_cpu_seconds: float = 0.0


def main(way: str) -> None:
    """`flow` or `direct`. The time is the drain's, from before its first claim to its end."""
    moments = Moments()
    drain = _prepare_flow() if way == "flow" else drain_directly
    with PeakMemory() as memory, _watched_drains(moments):
        moments.called_at = time.monotonic()
        items = drain()
        moments.returned_at = time.monotonic()
    seconds = moments.drain_ended_at - moments.drain_began_at
    figures = {"seconds": seconds, "peak_mb": memory.peak_mb, "items": items}
    sys.stdout.write(json.dumps(figures | asdict(moments)))


def drain_directly() -> int:
    """What the flow does, with steps that are no tasks."""
    with open_app() as app, app.heartbeat() as heartbeat:
        prepare_index(app.database, app.embedder.identity)
        app.worker(app.processor(), heartbeat).run(lambda: True)
        return heartbeat.items_completed


def _prepare_flow() -> Callable[[], int]:
    from entrypoints.cli.local_servers import connect_prefect, without_heartbeats

    connect_prefect(load_settings())
    from flows.process import process

    def drain() -> int:
        with without_heartbeats():
            return process()

    return drain


@contextmanager
def _watched_drains(moments: Moments) -> Iterator[None]:
    """The flow builds its drain itself, so it is timed where it is defined."""
    run = Worker.run

    def watched(drain: Worker, is_over: Callable[[], bool]) -> None:
        moments.drain_began_at, cpu = time.monotonic(), time.process_time()
        run(drain, is_over)
        moments.drain_ended_at = time.monotonic()
        moments.drain_cpu_seconds = time.process_time() - cpu

    with patch.object(Worker, "run", watched):
        yield


if __name__ == "__main__":
    main(sys.argv[1])
