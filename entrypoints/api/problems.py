"""Errors as problem documents (RFC 9457)."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from penstock.errors import (
    ConfigurationError,
    NotFound,
    Overloaded,
    PenstockError,
    RunRefused,
    ServiceError,
    StoreUnavailable,
    UsageError,
)
from penstock.intake.idempotency import KeyReused

log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
# The first that fits; the more special ones stand first.
_STATUS: tuple[tuple[type[PenstockError], int], ...] = (
    (KeyReused, 422),
    (NotFound, 404),
    (UsageError, 400),
    (RunRefused, 409),
    (Overloaded, 429),
    (ServiceError, 503),
    (StoreUnavailable, 503),
    (ConfigurationError, 503),
)
RETRY_SECONDS = 5


class Problem(HTTPException):
    """An answer that is an error, with more to say than a sentence."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(status, detail, headers=dict(headers or {}))
        self.extra = extra


def problem_response(
    status: int, detail: str, *, headers: Mapping[str, str] | None = None, **extra: Any
) -> JSONResponse:
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **extra,
    }
    return JSONResponse(body, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def add_problem_handlers(app: FastAPI) -> None:
    """Have every error leave as a problem document."""
    app.add_exception_handler(PenstockError, _of_penstock)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(Exception, _of_bug)


def _of_penstock(_: Request, error: Exception) -> JSONResponse:
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
    if status == 500:
        log.error("a request failed", exc_info=error)
    headers = {}
    if status in (429, 503):
        seconds = getattr(error, "retry_after_seconds", RETRY_SECONDS)
        headers["Retry-After"] = str(max(1, round(seconds)))
    extra = {"active_run_id": error.active_run_id} if isinstance(error, RunRefused) else {}
    return problem_response(status, str(error), headers=headers, **extra)


def _of_http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    extra = error.extra if isinstance(error, Problem) else {}
    return problem_response(error.status_code, str(error.detail), headers=error.headers, **extra)


def _of_validation(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    wrong = [
        {"where": ".".join(map(str, one["loc"])), "what": one["msg"]} for one in error.errors()
    ]
    return problem_response(422, f"{wrong[0]['where']}: {wrong[0]['what']}", errors=wrong)


def _of_bug(request: Request, error: Exception) -> JSONResponse:
    # What went wrong may hold what others sent; it goes to the log, not to the caller.
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_response(500, "the server failed at this; its log says why")
