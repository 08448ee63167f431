"""Errors as problem documents (RFC 9457)."""

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
from penstock.intake.nodes import KeyReused
from penstock.settings import Settings, hide_paths

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
_BUG = "internal error; the server's log has the details"
# What the framework says, in terms of this API.
_MEANINGS = {
    "Not Found": "there is nothing at this path; /docs describes the API",
    "Method Not Allowed": "this path does not take this method; /docs describes the API",
    "There was an error parsing the body": "the body cannot be read: send what /docs describes, "
    "JSON in UTF-8 or a form",
}


class Problem(HTTPException):
    """An error answer with a status, headers and further fields."""

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
    for kind in (PenstockError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, answer_error)


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """The problem document of any error."""
    answer = as_problem(request, error)
    return problem_response(answer.status, answer.detail, headers=answer.headers, **answer.extra)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request that failed."""

    status: int
    detail: str
    headers: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


def as_problem(request: Request, error: Exception) -> Answer:
    """The answer to any error."""
    if isinstance(error, PenstockError):
        return _of_penstock(request, error)
    if isinstance(error, Problem):
        return Answer(error.status_code, str(error.detail), error.headers or {}, error.extra)
    if isinstance(error, HTTPException):
        detail = _MEANINGS.get(str(error.detail), str(error.detail))
        return Answer(error.status_code, detail, error.headers or {})
    if isinstance(error, RequestValidationError):
        wrong = list_faults(error.errors())
        return Answer(422, f"{wrong[0]['where']}: {wrong[0]['what']}", extra={"errors": wrong})
    return _of_bug(request, error)


def _of_penstock(request: Request, error: PenstockError) -> Answer:
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
    if status == 500:
        return _of_bug(request, error)
    if status in (429, 503):
        seconds = getattr(error, "retry_after_seconds", None) or RETRY_SECONDS
        detail = describe_outage(request, str(error)) if status == 503 else str(error)
        return _busy(status, detail, seconds)
    extra = {"active_run_id": error.active_run_id} if isinstance(error, RunRefused) else {}
    return Answer(status, str(error), extra=extra)


def describe_outage(request: Request, problem: str) -> str:
    """What is wrong with the service, without where its files lie: that goes to the log."""
    log.warning("%s %s cannot be answered now: %s", request.method, request.url.path, problem)
    settings: Settings = request.app.state.penstock.settings
    return hide_paths(problem, settings.folders)


def _busy(status: int, detail: str, seconds: float) -> Answer:
    wait = max(1, math.ceil(seconds))
    answer = f"{detail.rstrip('.')}; try again in {wait} s"
    return Answer(status, answer, {"Retry-After": str(wait)})


def busy_response(status: int, detail: str, seconds: float, **extra: Any) -> JSONResponse:
    """An answer with a Retry-After header."""
    answer = _busy(status, detail, seconds)
    return problem_response(status, answer.detail, headers=answer.headers, **extra)


def list_faults(errors: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What pydantic found wrong, without what it was given: that may be large, or secret."""
    return [
        {
            "where": ".".join(map(str, one["loc"])) or "it",
            "what": str(one["msg"]).removeprefix("Value error, "),
        }
        for one in errors
    ]


def _of_bug(request: Request, error: Exception) -> Answer:
    if isinstance(error, ClientDisconnect):
        return Answer(400, "the client disconnected before the answer")
    # What went wrong may hold what others sent; it goes to the log, not to the caller.
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return Answer(500, _BUG)
