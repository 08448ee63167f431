"""Requests that are too large are refused before they are read, or as soon as they turn out so."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from entrypoints.api.problems import Problem, problem_response


class BodyLimit:
    """Caps the body of every request; uploads may be larger than JSON."""

    def __init__(self, app: ASGIApp, *, json_bytes: int, upload_bytes: int) -> None:
        self._app = app
        self._json_bytes = json_bytes
        self._upload_bytes = upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._upload_bytes if scope["path"].endswith("/upload") else self._json_bytes
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            await problem_response(413, _refusal(limit))(scope, receive, send)
            return
        await self._app(scope, _counted(receive, limit), send)


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
    return f"the request is larger than the {limit} bytes allowed"
