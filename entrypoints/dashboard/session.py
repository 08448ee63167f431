"""The session cookie: it carries the token that was given at sign-in."""

from typing import Any

from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX = "/ui"
SESSION = "penstock_session"


class SessionCookie:
    """For the pages, and for nothing else, the cookie stands for the header that the API asks
    for. So both have the same tokens, tenants, scopes and rates; and no page of another site can
    use the API by the cookie, since the API does not look at it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": _with_token(scope["headers"])}
        await self._app(scope, receive, send)


def _with_token(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    token = _read_cookie(headers)
    others = [(name, value) for name, value in headers if name != b"authorization"]
    return [*others, (b"authorization", f"Bearer {token}".encode())] if token else headers


def _read_cookie(headers: list[tuple[bytes, bytes]]) -> str | None:
    """Other programs at this machine may put cookies beside ours that are odd."""
    jar: dict[str, str] = {}
    for name, value in headers:
        if name == b"cookie":
            jar.update(cookie_parser(value.decode("latin-1")))
    found = jar.get(SESSION)
    return found if found and found.isascii() else None


def put_cookie(response: Response, name: str, value: str, *, secure: bool, **more: Any) -> None:
    """Not to be read by scripts, and not sent along by other sites' forms."""
    response.set_cookie(
        name, value, path=PREFIX, httponly=True, samesite="lax", secure=secure, **more
    )
