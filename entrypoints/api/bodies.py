"""Requests of strangers, and those too large, are refused before they are read."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from entrypoints.api.problems import Problem, problem_response
from entrypoints.api.tokens import TokenReader

_WITH_BODY = ("POST", "PUT", "PATCH")


class BodyGuard:
    """Reads no body of whoever shows no token, and of nobody more than the cap; uploads may be
    larger than JSON. What turns out to be too large on the way is refused there."""

    def __init__(
        self, app: ASGIApp, *, tokens: TokenReader | None, json_bytes: int, upload_bytes: int
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._json_bytes = json_bytes
        self._upload_bytes = upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._upload_bytes if scope["path"].endswith("/upload") else self._json_bytes
        try:
            self._check(scope["method"], dict(scope["headers"]), limit)
        except Problem as problem:
            refusal = problem_response(problem.status_code, problem.detail, headers=problem.headers)
            await refusal(scope, receive, send)
            return
        await self._app(scope, _counted(receive, limit), send)

    def _check(self, method: str, headers: dict[bytes, bytes], limit: int) -> None:
        if self._tokens is not None and method in _WITH_BODY:
            self._tokens.read(headers.get(b"authorization", b"").decode("latin-1"))
        declared = headers.get(b"content-length", b"")
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
