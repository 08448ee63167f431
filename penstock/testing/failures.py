"""The errors a client of Groq meets, with the words and codes that Groq uses."""

from datetime import datetime
from email.utils import format_datetime

from penstock.testing.behaviours import Behaviour, Failure, Page

RetryAfter = int | float | str | datetime | None
"""Seconds, a date (sent as an HTTP date), a header value as it stands, or no header."""

_SERVER_FAULT = "internal_server_error"
_DAILY_TOKENS = 500_000


def json_validate_failed(failed_generation: str = '{"title": "Pump') -> Behaviour:
    """400: the model wrote something that is not the JSON asked for."""
    message = (
        "Failed to generate JSON. Please adjust your prompt. "
        "See 'failed_generation' for more details."
    )
    details = {"failed_generation": failed_generation}
    return Failure(400, message, code="json_validate_failed", details=details)


def model_decommissioned() -> Behaviour:
    """400: how models were retired earlier."""
    message = (
        "The model `{model}` has been decommissioned and is no longer supported. "
        "Please refer to https://console.groq.com/docs/deprecations for a recommendation "
        "on which model to use instead."
    )
    return Failure(400, message, code="model_decommissioned")


def bad_request(message: str, code: str | None = None) -> Behaviour:
    """400 in your own words."""
    return Failure(400, message, code=code)


def invalid_api_key() -> Behaviour:
    """401."""
    return Failure(401, "Invalid API Key", code="invalid_api_key")


def forbidden() -> Behaviour:
    """403."""
    message = "The model `{model}` is blocked at the project level."
    return Failure(403, message, "permissions_error", "model_permission_blocked_project")


def model_not_found() -> Behaviour:
    """404: a model that never was, or is no more."""
    message = "The model `{model}` does not exist or you do not have access to it."
    return Failure(404, message, code="model_not_found")


def too_large(limit: int = 6000, requested: int = 9000) -> Behaviour:
    """413: one request that is over the limit of tokens all by itself."""
    message = (
        "Request too large for model `{model}` on tokens per minute (TPM): "
        f"Limit {limit}, Requested {requested}, please reduce your message size and try again."
    )
    return Failure(413, message, "tokens", "rate_limit_exceeded")


def rate_limited(
    retry_after: RetryAfter = None,
    *,
    header: str = "retry-after",
    unit: str = "requests",
    message: str = "Rate limit reached for model `{model}` on requests per minute (RPM).",
) -> Behaviour:
    """429. `header` is the spelling of the header's name."""
    failure = Failure(429, message, unit, "rate_limit_exceeded")
    return failure if retry_after is None else failure.with_header(header, _spell(retry_after))


def daily_quota(retry_after: RetryAfter = 4 * 3600) -> Behaviour:
    """429: the tokens of the day are gone, which hours will mend and retries will not."""
    message = (
        "Rate limit reached for model `{model}` on tokens per day (TPD): "
        f"Limit {_DAILY_TOKENS}, Used {_DAILY_TOKENS}, Requested 1200. "
        "Please try again later."
    )
    return rate_limited(retry_after, unit="tokens", message=message)


def capacity_exceeded() -> Behaviour:
    """498: Groq's own status for a flex tier that has no room."""
    return Failure(498, "Flex tier capacity exceeded", _SERVER_FAULT, "capacity_exceeded")


def server_error() -> Behaviour:
    """500."""
    return Failure(500, "Internal Server Error", _SERVER_FAULT)


def bad_gateway() -> Behaviour:
    """502 with a page of HTML, as a proxy sends it."""
    page = b"<html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>"
    return Page(502, page, media_type="text/html")


def unavailable() -> Behaviour:
    """503."""
    return Failure(503, "Service Unavailable", _SERVER_FAULT)


def _spell(retry_after: int | float | str | datetime) -> str:
    if isinstance(retry_after, datetime):
        return format_datetime(retry_after, usegmt=True)
    return str(retry_after)
