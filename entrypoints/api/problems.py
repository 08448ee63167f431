"""Errors as problem documents (RFC 9457)."""

import logging
import math
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from penstock.errors import (
    ConfigurationError,
    DocumentFault,
    Interrupted,
    NotFound,
    Overloaded,
    PenstockError,
    RunRefused,
    SchemaMismatch,
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
    (SchemaMismatch, 503),
    (ConfigurationError, 503),
    (Interrupted, 503),
    # Here it is never the caller's document, but the store of raw bytes that cannot be used.
    (DocumentFault, 503),
)
RETRY_SECONDS = 5
_BUG = "the server failed at this; its log says why"
# What the framework says, and what it means to whoever reads it.
_MEANINGS = {
    "Not Found": "there is nothing at this path; /docs describes the API",
    "Method Not Allowed": "this path does not take this method; /docs describes the API",
    "There was an error parsing the body": "the body cannot be read: send what /docs describes, "
    "JSON in UTF-8 or a form",
}


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


class ProblemDocument(BaseModel):
    """What is wrong, and what to do about it (RFC 9457)."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str
    errors: list[dict[str, str]] = Field([], description="Each thing that is wrong, and where")


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """These errors, as a route's `responses`."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }


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


def _of_penstock(request: Request, error: Exception) -> JSONResponse:
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
    if status == 500:
        return _of_bug(request, error)
    if status in (429, 503):
        seconds = getattr(error, "retry_after_seconds", None) or RETRY_SECONDS
        return busy_response(status, str(error), seconds)
    if isinstance(error, RunRefused):
        return problem_response(status, str(error), active_run_id=error.active_run_id)
    return problem_response(status, str(error))


def busy_response(status: int, detail: str, seconds: float, **extra: Any) -> JSONResponse:
    """Not now; when to come back."""
    wait = max(1, math.ceil(seconds))
    headers = {"Retry-After": str(wait)}
    told = f"{detail.rstrip('.')}; try again in {wait} s"
    return problem_response(status, told, headers=headers, **extra)


def _of_http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if isinstance(error, Problem):
        return problem_response(
            error.status_code, str(error.detail), headers=error.headers, **error.extra
        )
    detail = _MEANINGS.get(str(error.detail), str(error.detail))
    return problem_response(error.status_code, detail, headers=error.headers)


def _of_validation(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    wrong = list_faults(error.errors())
    return problem_response(422, f"{wrong[0]['where']}: {wrong[0]['what']}", errors=wrong)


def list_faults(errors: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What pydantic found wrong, without what it was given: that may be large, or secret."""
    return [
        {
            "where": ".".join(map(str, one["loc"])) or "it",
            "what": str(one["msg"]).removeprefix("Value error, "),
        }
        for one in errors
    ]


def _of_bug(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, ClientDisconnect):
        # Nobody is left to be told.
        return problem_response(400, "the client went away before it had its answer")
    # What went wrong may hold what others sent; it goes to the log, not to the caller.
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_response(500, _BUG)
