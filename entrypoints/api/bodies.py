"""Refuses requests of strangers, and those that are too large, before reading them."""

from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from entrypoints.api.problems import Problem, problem_response

Admit = Callable[[str, Headers], object]
"""Takes a method and headers, and raises Problem unless their sender may send a body."""

_WITH_BODY = ("POST", "PUT", "PATCH")


class BodyGuard:
    """Reads no body that `admit` refuses, and none beyond the limit, which is higher for uploads.
    A body whose length is not declared is counted while it is read."""

    def __init__(
        self, app: ASGIApp, *, admit: Admit | None, json_bytes: int, upload_bytes: int
    ) -> None:
        self._app = app
        self._admit = admit
        self._json_bytes = json_bytes
        self._upload_bytes = upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._upload_bytes if scope["path"].endswith("/upload") else self._json_bytes
        try:
            self._check(scope["method"], Headers(scope=scope), limit)
        except Problem as problem:
            refusal = problem_response(problem.status_code, problem.detail, headers=problem.headers)
            await refusal(scope, receive, send)
            return
        await self._app(scope, _counted(receive, limit), send)

    def _check(self, method: str, headers: Headers, limit: int) -> None:
        if self._admit is not None and method in _WITH_BODY:
            self._admit(method, headers)
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > limit:
            raise Problem(413, _refusal(limit))


def _counted(receive: Receive, limit: int) -> Receive:
    left = limit

    async def receiving() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise Problem(413, _refusal(limit))
        return message

    return receiving


def _refusal(limit: int) -> str:
    return f"the request is larger than the {limit} bytes allowed: send less at a time"
