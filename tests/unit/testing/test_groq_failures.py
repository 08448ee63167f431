from datetime import UTC, datetime
from typing import Any

import groq
import pytest

from penstock.testing import (
    Behaviour,
    GroqServer,
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

from .conftest import Ask, MakeClient, ask_with

pytestmark = pytest.mark.full_suite


def failure_of(ask: Ask, *arguments: Any, **options: Any) -> groq.APIStatusError:
    with pytest.raises(groq.APIStatusError) as caught:
        ask(*arguments, **options)
    return caught.value


def error_in(failure: groq.APIStatusError) -> dict[str, Any]:
    assert isinstance(failure.body, dict)
    error: dict[str, Any] = failure.body["error"]
    return error


@pytest.mark.parametrize(
    ("behaviour", "kind", "status", "code"),
    [
        (bad_request("no", "odd"), groq.BadRequestError, 400, "odd"),
        (json_validate_failed(), groq.BadRequestError, 400, "json_validate_failed"),
        (model_decommissioned(), groq.BadRequestError, 400, "model_decommissioned"),
        (invalid_api_key(), groq.AuthenticationError, 401, "invalid_api_key"),
        (forbidden(), groq.PermissionDeniedError, 403, "model_permission_blocked_project"),
        (model_not_found(), groq.NotFoundError, 404, "model_not_found"),
        (too_large(), groq.APIStatusError, 413, "rate_limit_exceeded"),
        (rate_limited(), groq.RateLimitError, 429, "rate_limit_exceeded"),
        (daily_quota(), groq.RateLimitError, 429, "rate_limit_exceeded"),
        (capacity_exceeded(), groq.APIStatusError, 498, "capacity_exceeded"),
        (server_error(), groq.InternalServerError, 500, None),
        (unavailable(), groq.InternalServerError, 503, None),
    ],
)
def test_a_failure_reaches_the_client_as_its_own_kind(
    server: GroqServer,
    ask: Ask,
    behaviour: Behaviour,
    kind: type[groq.APIStatusError],
    status: int,
    code: str | None,
) -> None:
    server.script("small", [behaviour])
    failure = failure_of(ask)
    assert type(failure) is kind
    assert failure.status_code == status
    assert error_in(failure).get("code") == code
    assert {"message", "type"} <= set(error_in(failure))
    assert server.count("small", status) == 1


def test_a_failed_generation_is_shown(server: GroqServer, ask: Ask) -> None:
    server.script("small", [json_validate_failed('{"a": ')])
    assert error_in(failure_of(ask))["failed_generation"] == '{"a": '


def test_a_proxy_s_page_is_no_json(server: GroqServer, ask: Ask) -> None:
    server.script("small", [bad_gateway()])
    failure = failure_of(ask)
    assert isinstance(failure, groq.InternalServerError)
    assert failure.response.headers["content-type"] == "text/html"
    assert "<html>" in str(failure.body)


@pytest.mark.parametrize(
    ("retry_after", "header"),
    [
        (2, "2"),
        (0.25, "0.25"),
        (datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC), "Wed, 02 Jan 2030 03:04:05 GMT"),
        ("soon", "soon"),
        (None, None),
    ],
)
def test_retry_after_is_seen_as_it_was_given(
    server: GroqServer, ask: Ask, retry_after: Any, header: str | None
) -> None:
    server.script("small", [rate_limited(retry_after)])
    assert failure_of(ask).response.headers.get("retry-after") == header


def test_the_spelling_of_a_header_is_kept(server: GroqServer, ask: Ask) -> None:
    server.script("small", [rate_limited(7, header="RETRY-AFTER")])
    headers = failure_of(ask).response.headers
    assert (b"RETRY-AFTER", b"7") in headers.raw
    assert headers["retry-after"] == "7"


def test_a_daily_quota_has_a_retry_after_of_hours(server: GroqServer, ask: Ask) -> None:
    server.script("small", [daily_quota()])
    failure = failure_of(ask)
    assert "tokens per day (TPD)" in error_in(failure)["message"]
    assert int(failure.response.headers["retry-after"]) >= 3600


def test_a_wrong_key_is_refused_everywhere(make_client: MakeClient) -> None:
    with GroqServer(api_key="right") as server:
        ask_with(make_client(server, api_key="right"))
        stranger = make_client(server, api_key="wrong")
        with pytest.raises(groq.AuthenticationError, match="invalid_api_key"):
            ask_with(stranger)
        with pytest.raises(groq.AuthenticationError):
            stranger.models.list()
        assert [request.status for request in server.requests] == [200, 401]


def test_a_retired_model_is_not_found(make_client: MakeClient) -> None:
    with GroqServer(retired=["old"]) as server, pytest.raises(groq.NotFoundError) as caught:
        ask_with(make_client(server), model="old")
    assert error_in(caught.value)["code"] == "model_not_found"
    assert "`old`" in error_in(caught.value)["message"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {}},
                }
            },
            "does not support response format `json_schema`",
        ),
        ({"reasoning_effort": "low"}, "`reasoning_effort` is not supported with this model"),
    ],
)
def test_what_a_model_cannot_do_is_refused(
    make_client: MakeClient, options: dict[str, Any], complaint: str
) -> None:
    lacking = {"without_json_schema": ["small"], "without_reasoning_effort": ["small"]}
    with GroqServer(**lacking) as server:  # type: ignore[arg-type]
        with pytest.raises(groq.BadRequestError, match=complaint) as caught:
            ask_with(make_client(server), **options)
        assert ask_with(make_client(server), model="large", reasoning_effort="low").choices
    assert error_in(caught.value)["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"type": "object", "properties": {}}, "additionalProperties:false"),
        (
            {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
            "missing: .*'a'",
        ),
    ],
)
def test_a_schema_too_loose_for_strict_mode_is_refused(
    ask: Ask, schema: dict[str, Any], complaint: str
) -> None:
    outer = {
        "type": "object",
        "properties": {"inner": {"type": "array", "items": schema}},
        "required": ["inner"],
        "additionalProperties": False,
    }
    named = {"name": "x", "strict": True, "schema": outer}
    with pytest.raises(groq.BadRequestError, match=complaint):
        ask(response_format={"type": "json_schema", "json_schema": named})


def test_json_mode_wants_the_word_in_the_messages(ask: Ask) -> None:
    with pytest.raises(groq.BadRequestError, match="must contain the word 'json'"):
        ask("Pumps", response_format={"type": "json_object"})


def test_a_stream_is_refused_in_clear_words(ask: Ask) -> None:
    with pytest.raises(groq.BadRequestError, match="`stream` is not supported"):
        ask(stream=True)
