"""Stand-ins for outside services, for the tests of programs that use Penstock."""

from penstock.testing.behaviours import (
    Answer,
    Behaviour,
    Failure,
    Page,
    Reply,
    cut_short,
    drop,
    hang,
)
from penstock.testing.chat import ChatRequest
from penstock.testing.failures import (
    bad_gateway,
    bad_request,
    capacity_exceeded,
    daily_quota,
    forbidden,
    invalid_api_key,
    json_validate_failed,
    model_decommissioned,
    model_not_found,
    rate_limited,
    server_error,
    too_large,
    unavailable,
)
from penstock.testing.groq_server import GroqServer

__all__ = [
    "Answer",
    "Behaviour",
    "ChatRequest",
    "Failure",
    "GroqServer",
    "Page",
    "Reply",
    "bad_gateway",
    "bad_request",
    "capacity_exceeded",
    "cut_short",
    "daily_quota",
    "drop",
    "forbidden",
    "hang",
    "invalid_api_key",
    "json_validate_failed",
    "model_decommissioned",
    "model_not_found",
    "rate_limited",
    "server_error",
    "too_large",
    "unavailable",
]
