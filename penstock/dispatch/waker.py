"""Tells a waiting worker at once that something was put into a queue."""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.dispatch.connection import read_address
from penstock.dispatch.keys import WAKE_CHANNEL
from penstock.dispatch.outage import Outage

if TYPE_CHECKING:
    from redis import Redis
    from redis.client import PubSub

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2
_STOP_SECONDS = 0.8
# A connection may die without a word: a new one is made now and then.
_RENEW_SECONDS = 30.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0


class Waker:
    """A thread that calls back for every wake-up, and whenever one may have been missed.

    The callback should only set an event: it is called in this thread, possibly often.
    """

    def __init__(self, client: "Redis", callback: Callable[[], None]) -> None:
        self._client = client
        self._callback = callback
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._outage = Outage(
            "until it can, workers look for work by themselves", read_address(client)
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-waker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No callback begins after this. A thread that still waits for Redis ends by itself."""
        self._stopping.set()
        self._thread.join(_STOP_SECONDS)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._client.pubsub() as subscription:  # type: ignore[no-untyped-call]
                    self._listen(subscription)
            except Exception as error:
                # A waker that ends at an error lets its worker sleep on for ever.
                self._outage.begin(error)
                self._stopping.wait(self._pause_seconds)
                self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)

    def _listen(self, subscription: "PubSub") -> None:
        renew_at = time.monotonic() + _RENEW_SECONDS
        subscription.subscribe(WAKE_CHANNEL)
        while not self._stopping.is_set() and time.monotonic() < renew_at:
            message = subscription.get_message(timeout=_LOOK_SECONDS)
            if message is not None:
                self._hear(message["type"])

    def _hear(self, kind: str) -> None:
        if kind == "subscribe":
            self._outage.end()
            self._pause_seconds = _FIRST_PAUSE_SECONDS
        if not self._stopping.is_set():
            self._call_back()

    def _call_back(self) -> None:
        try:
            self._callback()
        except Exception:
            log.exception("what a wake-up calls has failed")
