"""Showing things in Prefect, which is never worth stopping for."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from prefect.exceptions import PrefectException

log = logging.getLogger(__name__)


@contextmanager
def best_effort(what: str) -> Iterator[None]:
    """What cannot be shown, because the server is away, is no reason to stop the work."""
    try:
        yield
    except (httpx.HTTPError, PrefectException) as error:
        log.warning("%s could not be shown in Prefect: %s", what, error)
