"""The lines of a run's own log in Prefect; those about single documents stay in the store."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect import get_run_logger

from penstock.events.record import run_log


class _ToPrefect(logging.Handler):
    """Hands records on to the logger of one flow run, from whatever thread they come."""

    def __init__(self, logger: Any) -> None:
        super().__init__(logging.INFO)
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        self._logger.log(record.levelno, record.getMessage())


@contextmanager
def shown_run_log() -> Iterator[None]:
    """Show what is recorded about runs in this block as log lines of the flow run."""
    handler, level = _ToPrefect(get_run_logger()), run_log.level
    run_log.addHandler(handler)
    run_log.setLevel(logging.INFO)
    try:
        yield
    finally:
        run_log.removeHandler(handler)
        run_log.setLevel(level)
