"""The pages, under /ui of the server that has the API."""

from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from entrypoints.api.bodies import BodyGuard
from entrypoints.api.problems import as_problem
from entrypoints.api.starting import UnknownSource
from entrypoints.dashboard.pages import (
    cost,
    document,
    login,
    logs,
    queues,
    review,
    run,
    runs,
    search,
)
from entrypoints.dashboard.rendering import STATIC, show
from entrypoints.dashboard.session import PREFIX, SessionCookie
from penstock.errors import PenstockError

_LARGEST_FORM = 64 * 1024
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def add_dashboard(api: FastAPI) -> None:
    """Serve the pages beside the API, with its parts, tokens and rates."""
    pages = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    pages.state = api.state
    for module in (runs, run, logs, document, search, review, queues, cost, login):
        pages.include_router(module.router, prefix=PREFIX)
    for kind in (PenstockError, HTTPException, RequestValidationError, Exception):
        pages.add_exception_handler(kind, _show_problem)
    # Who sends a form is checked where it is read.
    pages.add_middleware(
        BodyGuard, admit=None, json_bytes=_LARGEST_FORM, upload_bytes=_LARGEST_FORM
    )
    pages.mount(f"{PREFIX}/static", StaticFiles(directory=STATIC))
    for path in (PREFIX, f"{PREFIX}/"):
        pages.add_api_route(path, _go_to_runs)
    api.add_api_route("/", _go_to_runs, include_in_schema=False)
    api.add_middleware(_Router, pages=SessionCookie(_SecurityHeaders(pages)))


async def _go_to_runs() -> RedirectResponse:
    return RedirectResponse(f"{PREFIX}/runs")


class _Router:
    """Routes to the pages or to the API: they differ in sign-in and in error answers."""

    def __init__(self, app: ASGIApp, pages: ASGIApp) -> None:
        self._api = app
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        ours = scope["type"] == "http" and (path == PREFIX or path.startswith(f"{PREFIX}/"))
        await (self._pages if ours else self._api)(scope, receive, send)


class _SecurityHeaders:
    """Adds the security headers to every answer, unexpected errors included."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # What one person has seen is not kept for the next one at this machine.
        kept = "no-cache" if scope.get("path", "").startswith(f"{PREFIX}/static/") else "no-store"

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in {**_HEADERS, "Cache-Control": kept}.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, sending)


async def _show_problem(request: Request, error: Exception) -> Response:
    problem = as_problem(request, error)
    if problem.status == 401 and request.method == "GET":
        query = f"?{request.url.query}" if request.url.query else ""
        wanted = f"{request.url.path.removeprefix(PREFIX)}{query}"
        return RedirectResponse(f"{PREFIX}/login?next={quote(wanted)}", 303)
    page: HTMLResponse = show(
        request,
        "problem.html",
        None,
        status=problem.status,
        problem=problem,
        heading="Unknown source" if isinstance(error, UnknownSource) else None,
    )
    page.headers.update(problem.headers)
    return page
