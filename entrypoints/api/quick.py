"""A shorter way for small requests that need nothing of what the framework does for them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from entrypoints.api.problems import answer_error
from penstock.errors import PenstockError

T = TypeVar("T")
Quick = Callable[[Request, bytes], Awaitable[Response | None]]
"""Takes a request and its body; None, before anything was changed, leaves it to the endpoint."""


class QuickPath:
    """Offers the requests of one method and path to `quick` first.

    Routing, dependencies and response models cost a small request more than all that is done for
    it. The endpoint describes the API, and answers everything out of the ordinary.
    """

    def __init__(self, app: ASGIApp, *, method: str, path: str, quick: Quick) -> None:
        self._app = app
        self._place = (method, path)
        self._quick = quick

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (scope["method"], scope["path"]) != self._place:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            body = await request.body()
            answer = await self._quick(request, body)
        except ClientDisconnect:
            return
        except (PenstockError, HTTPException) as error:
            answer = await answer_error(request, error)
        if answer is None:
            await self._app(scope, _with_body(body, receive), send)
        else:
            await answer(scope, receive, send)


def _with_body(body: bytes, receive: Receive) -> Receive:
    """What is received once more, beginning with the body that was read."""
    read = False

    async def receiving() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving


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
