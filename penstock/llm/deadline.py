"""An end to calls whose answers trickle in: httpx itself limits only the pause between pieces."""

import time
from collections.abc import Iterator

import httpx

_STARTED = "penstock.started"


def note_start(request: httpx.Request) -> None:
    """A hook for requests."""
    request.extensions = {**request.extensions, _STARTED: time.monotonic()}


class Deadline:
    """A hook for responses to requests whose start was noted."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.SyncByteStream)
        ends_at = response.request.extensions[_STARTED] + self._seconds
        response.stream = _TimedStream(response.stream, ends_at)


class _TimedStream(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, ends_at: float) -> None:
        self._stream = stream
        self._ends_at = ends_at

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            if time.monotonic() > self._ends_at:
                raise httpx.ReadTimeout("the answer takes too long to come")
            yield piece

    def close(self) -> None:
        self._stream.close()
