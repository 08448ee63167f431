"""What a program wants to be told, and how it is told without being able to do harm."""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

EVENTS = {
    "job_started": "(job, worker_id)",
    "job_completed": "(job, result)",
    "job_failed": "(job, error), once, when a job has failed for good",
    "worker_started": "(worker_id)",
    "worker_stopped": "(worker_id)",
    "worker_paused": "()",
    "worker_resumed": "()",
}


class Callbacks:
    """Functions to call by the name of an event; their errors are logged, and that is all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._functions: dict[str, list[Callable[..., object]]] = defaultdict(list)

    def add(self, event: str, function: Callable[..., object]) -> None:
        if event not in EVENTS:
            raise ValueError(f"there is no event {event!r}: use one of {', '.join(EVENTS)}")
        with self._lock:
            self._functions[event].append(function)

    def emit(self, event: str, *values: Any) -> None:
        with self._lock:
            functions = list(self._functions[event])
        for function in functions:
            try:
                function(*values)
            except Exception:
                log.exception("a callback for %s failed; the worker goes on", event)
