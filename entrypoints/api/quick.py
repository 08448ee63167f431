"""A shorter way through the framework for requests that need nothing of what it checks."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute

T = TypeVar("T")
Quick = Callable[[Request], Awaitable[Response | None]]


def quick_route(quick: Quick) -> type[APIRoute]:
    """A route whose requests are offered to `quick` first; it answers None for those that it leaves
    to the endpoint, before it has changed anything.

    Dependencies, validation of parameters and response models cost a small request more than all
    that is done for it. The endpoint describes the API, and answers everything out of the ordinary.
    """

    class QuickRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            whole = super().get_route_handler()

            async def handle(request: Request) -> Response:
                answer = await quick(request)
                return await whole(request) if answer is None else answer

            return handle

    return QuickRoute


class Settled:
    """Awaits futures that other threads settle many at a time, with one wake-up of the loop for all
    of them; `asyncio.wrap_future` has one for each. For use in one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._done: list[tuple[asyncio.Future[Any], Future[Any]]] = []

    async def wait(self, future: "Future[T]") -> T:
        """The result; when the caller is cancelled, the future is too."""
        mine: asyncio.Future[T] = self._loop.create_future()
        future.add_done_callback(lambda _: self._note(mine, future))
        try:
            return await mine
        except asyncio.CancelledError:
            future.cancel()
            raise

    def _note(self, mine: "asyncio.Future[Any]", future: "Future[Any]") -> None:
        with self._lock:
            first = not self._done
            self._done.append((mine, future))
        if first:
            self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        with self._lock:
            done, self._done = self._done, []
        for mine, future in done:
            _copy(future, mine)


def _copy(future: "Future[Any]", mine: "asyncio.Future[Any]") -> None:
    if mine.done():
        return
    error = None if future.cancelled() else future.exception()
    if future.cancelled():
        mine.cancel()
    elif error is not None:
        mine.set_exception(error)
    else:
        mine.set_result(future.result())
