"""One call to one model, and every way it can fail."""

import logging
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import BaseModel

from penstock.errors import ErrorClass, Interrupted, StagePaused
from penstock.llm.caller import (
    CallFailed,
    EndpointDown,
    InputTooLong,
    ModelCaller,
    ModelError,
    ModelNotFound,
    MustWait,
)
from penstock.llm.profiles import Profile
from penstock.llm.prompts import PreparedRequest
from penstock.retry import CircuitBreaker
from penstock.testing import (
    Answer,
    Failure,
    GroqServer,
    Page,
    Reply,
    bad_gateway,
    bad_request,
    capacity_exceeded,
    cut_short,
    daily_quota,
    drop,
    forbidden,
    hang,
    invalid_api_key,
    json_validate_failed,
    model_decommissioned,
    model_not_found,
    rate_limited,
    server_error,
    too_large,
    unavailable,
)
from tests.together import wait_until
from tests.unit.llm.models import (
    FALLBACK,
    KEY,
    PRIMARY,
    MakeCaller,
    build_caller,
    make_answer,
    make_prepared,
)

pytestmark = pytest.mark.full_suite

ROOM = 1024


@pytest.fixture
def caller(make_caller: MakeCaller) -> ModelCaller:
    return make_caller()


# What is sent


def test_a_request_is_sent_once_with_the_settings_of_the_chain(
    caller: ModelCaller, server: GroqServer
) -> None:
    caller.call(PRIMARY, make_prepared(), ROOM)
    [request] = server.requests
    assert (request.model, request.body["max_tokens"]) == (PRIMARY, ROOM)
    assert request.body["temperature"] == 0
    assert request.body["reasoning_effort"] == "low"
    assert request.response_kind == "json_schema"
    assert request.json_schema["strict"] is True


def test_a_reply_has_its_tokens_and_its_time(caller: ModelCaller, server: GroqServer) -> None:
    server.script(PRIMARY, [Reply(make_answer(), cached_tokens=7).after(0.05)])
    reply = caller.call(PRIMARY, make_prepared(), ROOM)
    assert reply.prompt_tokens == server.requests[0].prompt_tokens
    assert reply.completion_tokens > 0
    assert reply.cached_tokens == 7
    assert 0.05 <= reply.seconds < 5
    assert reply.truncated is False


def test_a_reply_at_the_token_limit_is_marked_as_truncated(
    caller: ModelCaller, server: GroqServer
) -> None:
    server.script(PRIMARY, [cut_short()])
    assert caller.call(PRIMARY, make_prepared(), ROOM).truncated is True


@pytest.mark.parametrize("content", [None, ""])
def test_a_reply_may_hold_nothing(
    caller: ModelCaller, server: GroqServer, content: str | None
) -> None:
    server.script(PRIMARY, [Reply(content)])
    assert not caller.call(PRIMARY, make_prepared(), ROOM).content


def test_content_that_is_no_text_is_no_content(caller: ModelCaller, server: GroqServer) -> None:
    parts = b'{"choices": [{"message": {"content": [{"type": "text", "text": "{}"}]}}]}'
    server.script(PRIMARY, [Page(200, parts, media_type="application/json")])
    assert caller.call(PRIMARY, make_prepared(), ROOM).content is None


def test_an_answer_without_any_count_of_tokens_is_an_answer(
    caller: ModelCaller, server: GroqServer
) -> None:
    body = b'{"choices": [{"message": {"content": "{}"}}], "usage": null}'
    server.script(PRIMARY, [Page(200, body, media_type="application/json")])
    reply = caller.call(PRIMARY, make_prepared(), ROOM)
    assert (reply.content, reply.prompt_tokens, reply.completion_tokens) == ("{}", 0, 0)


def test_an_answer_with_a_wrong_content_type_is_read_all_the_same(
    caller: ModelCaller, server: GroqServer
) -> None:
    server.script(PRIMARY, [Reply(make_answer()).labelled("text/html")])
    assert caller.call(PRIMARY, make_prepared(), ROOM).content


def test_no_more_calls_are_under_way_than_allowed(
    make_caller: MakeCaller, server: GroqServer
) -> None:
    caller = make_caller(concurrency=3)
    server.always(PRIMARY, Reply(make_answer()).after(0.05))
    threads = [
        threading.Thread(target=caller.call, args=(PRIMARY, make_prepared(), ROOM))
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.peak_concurrency == 3


# JSON modes


def test_a_model_without_strict_mode_gets_json_mode_and_the_schema_in_the_prompt(
    caller: ModelCaller, server: GroqServer
) -> None:
    caller.call("llama", make_prepared(), ROOM)
    [request] = server.requests
    assert request.response_kind == "json_object"
    assert "reasoning_effort" not in request.body
    assert "primary_skills" in str(request.messages[0]["content"])


def test_a_model_that_refuses_json_schema_gets_json_mode_from_then_on() -> None:
    with GroqServer(make_answer(), without_json_schema=[PRIMARY]) as server:
        caller = build_caller(server)
        for _ in range(2):
            assert caller.call(PRIMARY, make_prepared(), ROOM).content
        caller.close()
        kinds = [request.response_kind for request in server.requests]
    assert kinds == ["json_schema", "json_object", "json_object"]


def test_a_model_that_refuses_reasoning_effort_is_called_without() -> None:
    with GroqServer(make_answer(), without_reasoning_effort=[PRIMARY]) as server:
        caller = build_caller(server)
        caller.call(PRIMARY, make_prepared(), ROOM)
        caller.close()
        efforts = [request.body.get("reasoning_effort") for request in server.requests]
    assert efforts == ["low", None]


def test_a_model_that_refuses_any_format_gets_plain_text_mode(
    caller: ModelCaller, server: GroqServer
) -> None:
    server.always(PRIMARY, bad_request("no formats here"), when=lambda r: r.response_kind != "text")
    for _ in range(2):
        assert caller.call(PRIMARY, make_prepared(), ROOM).content
    kinds = [request.response_kind for request in server.requests]
    assert kinds == ["json_schema", "json_object", "text", "text"]


def test_a_model_that_refuses_everything_fails_the_call(
    caller: ModelCaller, server: GroqServer
) -> None:
    server.always(PRIMARY, bad_request("never"))
    with pytest.raises(CallFailed, match="never") as raised:
        caller.call(PRIMARY, make_prepared(), ROOM)
    assert raised.value.reason == "bad_request"
    assert server.count() == 3


def test_a_request_refused_in_every_mode_changes_nothing_for_others(
    caller: ModelCaller, server: GroqServer
) -> None:
    server.always(PRIMARY, bad_request("this text will not do"), when="unspeakable")
    with pytest.raises(CallFailed):
        caller.call(PRIMARY, make_prepared("unspeakable " * 20), ROOM)
    caller.call(PRIMARY, make_prepared(), ROOM)
    assert server.requests[-1].response_kind == "json_schema"


def test_the_refusal_of_one_model_does_not_change_the_mode_of_another(
    caller: ModelCaller, server: GroqServer
) -> None:
    server.always(PRIMARY, bad_request("no"), when=lambda r: r.response_kind == "json_schema")
    caller.call(PRIMARY, make_prepared(), ROOM)
    caller.call(FALLBACK, make_prepared(), ROOM)
    assert server.requests[-1].response_kind == "json_schema"


class Anything(BaseModel):
    """Strict mode cannot say this."""

    values: dict[str, int]
    confidence: float


def test_a_schema_that_does_not_fit_strict_mode_gets_json_mode_with_low_reasoning(
    caller: ModelCaller, server: GroqServer
) -> None:
    own = Profile("anything", Anything, "You read anything.")
    caller.call(PRIMARY, PreparedRequest(own, "x" * 100), ROOM)
    caller.call(PRIMARY, make_prepared(), ROOM)
    assert [request.response_kind for request in server.requests] == ["json_object", "json_schema"]
    assert [request.body["reasoning_effort"] for request in server.requests] == ["low", "low"]


# What goes wrong


@pytest.mark.parametrize(
    ("answer", "reason", "kind"),
    [
        (server_error(), "server_error", ErrorClass.UNAVAILABLE),
        (unavailable(), "server_error", ErrorClass.UNAVAILABLE),
        (bad_gateway(), "server_error", ErrorClass.UNAVAILABLE),
        (capacity_exceeded(), "server_error", ErrorClass.UNAVAILABLE),
        (drop(), "server_error", ErrorClass.UNAVAILABLE),
        (Reply().dropped_midway(), "server_error", ErrorClass.UNAVAILABLE),
        (Reply().truncated(), "server_error", ErrorClass.UNAVAILABLE),
        (Page(200, b"<html>", media_type="text/html"), "server_error", ErrorClass.UNAVAILABLE),
        (Page(200, b'{"choices": []}'), "server_error", ErrorClass.UNAVAILABLE),
        (Page(200, b"[]"), "server_error", ErrorClass.UNAVAILABLE),
        (Page(204, b""), "server_error", ErrorClass.UNAVAILABLE),
        (Page(408, b""), "server_error", ErrorClass.UNAVAILABLE),
        (hang(), "timeout", ErrorClass.TIMEOUT),
        (Reply().dribbled(20), "timeout", ErrorClass.TIMEOUT),
        (json_validate_failed(), "invalid_json", ErrorClass.UNKNOWN),
    ],
)
def test_a_failed_call_has_its_reason_and_its_time(
    make_caller: MakeCaller, server: GroqServer, answer: Answer, reason: str, kind: ErrorClass
) -> None:
    caller = make_caller(timeout_seconds=1.0 if reason == "timeout" else 30)
    server.always(PRIMARY, answer)
    with pytest.raises(CallFailed) as raised:
        caller.call(PRIMARY, make_prepared(), ROOM)
    assert (raised.value.reason, raised.value.kind) == (reason, kind)
    assert 0 < raised.value.seconds < 20
    assert KEY not in str(raised.value)
    assert server.count() == 1


def test_an_endpoint_that_is_not_there_fails_the_call(server: GroqServer) -> None:
    caller = build_caller(server)
    server.close()
    with pytest.raises(CallFailed, match=PRIMARY) as raised:
        caller.call(PRIMARY, make_prepared(), ROOM)
    caller.close()
    assert raised.value.kind is ErrorClass.UNAVAILABLE


@pytest.mark.parametrize("answer", [model_not_found(), model_decommissioned(), forbidden()])
def test_a_model_that_cannot_be_used_is_not_found(
    caller: ModelCaller, server: GroqServer, answer: Answer
) -> None:
    server.always(PRIMARY, answer)
    with pytest.raises(ModelNotFound, match=PRIMARY):
        caller.call(PRIMARY, make_prepared(), ROOM)
    assert server.count() == 1


@pytest.mark.parametrize(
    "answer", [too_large(), bad_request("shorter, please", "context_length_exceeded")]
)
def test_a_text_that_is_too_long_is_reported_as_such(
    caller: ModelCaller, server: GroqServer, answer: Answer
) -> None:
    server.always(PRIMARY, answer)
    with pytest.raises(InputTooLong):
        caller.call(PRIMARY, make_prepared(), ROOM)
    assert server.count() == 1


@pytest.mark.parametrize("answer", [invalid_api_key(), Page(403, b"no")])
def test_a_refused_key_pauses_at_once_and_names_the_setting(
    caller: ModelCaller, server: GroqServer, answer: Answer
) -> None:
    server.always(PRIMARY, answer)
    with pytest.raises(StagePaused, match="GROQ_API_KEY") as raised:
        caller.call(PRIMARY, make_prepared(), ROOM)
    assert KEY not in str(raised.value)
    assert server.count() == 1


def test_an_address_without_a_chat_endpoint_pauses_and_names_the_setting(
    server: GroqServer,
) -> None:
    caller = build_caller(server)
    caller._client.base_url = f"{server.base_url}/elsewhere"
    with pytest.raises(StagePaused, match="EXTRACTION_BASE_URL"):
        caller.call(PRIMARY, make_prepared(), ROOM)
    caller.close()


@pytest.mark.parametrize("status", [301, 302, 307, 308, 405])
def test_an_address_that_takes_no_chats_pauses_and_names_the_setting(
    caller: ModelCaller, server: GroqServer, status: int
) -> None:
    login = Page(status, b"<html>").with_header("Location", f"{server.base_url}/login")
    server.always(PRIMARY, login)
    with pytest.raises(StagePaused, match=rf"HTTP {status}.*EXTRACTION_BASE_URL"):
        caller.call(PRIMARY, make_prepared(), ROOM)
    assert server.count() == 1


@pytest.mark.parametrize(
    "answer",
    [
        Page(402, b"no"),
        Failure(402, "insufficient balance", code="insufficient_quota"),
        bad_request("Organization has been restricted", "organization_restricted"),
        bad_request("The limit of the month is reached", "blocked_api_access"),
        Failure(403, "restricted", code="organization_restricted"),
        Failure(429, "You exceeded your current quota", code="insufficient_quota"),
        Failure(429, "No credits are left", code="credit_balance_exhausted"),
    ],
)
def test_a_refused_account_pauses_at_once_and_says_what_to_do(
    caller: ModelCaller, server: GroqServer, answer: Answer
) -> None:
    server.always(PRIMARY, answer)
    with pytest.raises(StagePaused, match=r"refuses the account.*GROQ_API_KEY") as raised:
        caller.call(PRIMARY, make_prepared(), ROOM)
    assert KEY not in str(raised.value)
    assert server.count() == 1


def test_a_proxy_that_asks_for_a_password_pauses_and_names_the_setting(
    caller: ModelCaller, server: GroqServer
) -> None:
    server.always(PRIMARY, Page(407, b"no"))
    with pytest.raises(StagePaused, match="HTTPS_PROXY"):
        caller.call(PRIMARY, make_prepared(), ROOM)


# Waiting


@pytest.mark.parametrize(
    "answer",
    [
        rate_limited(0.05),
        rate_limited("0.05", header="RETRY-AFTER"),
        rate_limited("50", header="Retry-After-Ms"),
        rate_limited(datetime.now(UTC) - timedelta(seconds=5)),
    ],
)
def test_a_rate_limited_call_is_retried_after_the_wait(
    caller: ModelCaller, server: GroqServer, answer: Answer
) -> None:
    server.script(PRIMARY, [answer, answer])
    assert caller.call(PRIMARY, make_prepared(), ROOM).content
    assert server.count(status=429) == 2


def test_a_retry_comes_no_earlier_than_retry_after(caller: ModelCaller, server: GroqServer) -> None:
    server.script(PRIMARY, [rate_limited(0.4)])
    caller.call(PRIMARY, make_prepared(), ROOM)
    refused, taken = server.requests
    assert taken.at - refused.at >= 0.4


def test_a_long_wait_goes_back_to_the_queue(caller: ModelCaller, server: GroqServer) -> None:
    server.script(PRIMARY, [rate_limited(90)])
    with pytest.raises(MustWait) as raised:
        caller.call(PRIMARY, make_prepared(), ROOM)
    assert raised.value.seconds == 90


def test_the_quota_of_a_day_pauses_and_names_the_model(
    caller: ModelCaller, server: GroqServer
) -> None:
    server.script(PRIMARY, [daily_quota(4 * 3600)])
    with pytest.raises(StagePaused, match=r"quota for openai/gpt-oss-20b.*4\.0 h"):
        caller.call(PRIMARY, make_prepared(), ROOM)


# An endpoint that is down


def test_an_endpoint_that_does_not_answer_is_left_alone_with_one_warning(
    make_caller: MakeCaller, caplog: pytest.LogCaptureFixture
) -> None:
    caller = make_caller(breaker=CircuitBreaker(failures=2, open_seconds=60))
    caller.record_no_answer("HTTP 503", unreachable=False)
    with caplog.at_level(logging.WARNING), pytest.raises(EndpointDown):
        caller.record_no_answer("HTTP 503", unreachable=False)
    assert caplog.text.count("EXTRACTION_BASE_URL") == 1
    with pytest.raises(EndpointDown) as raised:
        caller.check_endpoint()
    assert 0 < raised.value.seconds <= 60


def ask_with_an_open_circuit(
    make_caller: MakeCaller, server: GroqServer, answer: Answer
) -> CircuitBreaker:
    """The circuit after one call that is allowed to find out whether the endpoint is back."""
    breaker = CircuitBreaker(failures=1, open_seconds=60)
    caller = make_caller(breaker=breaker)
    breaker.failed()
    server.always(PRIMARY, answer)
    with suppress(ModelError, StagePaused):
        caller.call(PRIMARY, make_prepared(), ROOM)
    return breaker


@pytest.mark.parametrize(
    "answer",
    [
        make_answer(),
        too_large(),
        json_validate_failed(),
        bad_request("no"),
        model_not_found(),
        rate_limited(90),
    ],
)
def test_an_answer_to_the_request_shows_that_the_endpoint_is_alive(
    make_caller: MakeCaller, server: GroqServer, answer: Answer
) -> None:
    assert not ask_with_an_open_circuit(make_caller, server, answer).is_open


@pytest.mark.parametrize(
    "answer",
    [
        server_error(),
        invalid_api_key(),
        Page(302, b""),
        Page(402, b""),
        Page(404, b""),
        Page(405, b""),
        Page(407, b""),
        Page(408, b""),
        bad_request("restricted", "organization_restricted"),
    ],
)
def test_an_answer_of_anything_else_does_not(
    make_caller: MakeCaller, server: GroqServer, answer: Answer
) -> None:
    assert ask_with_an_open_circuit(make_caller, server, answer).is_open


# Stopping


def test_a_closed_caller_makes_no_call(caller: ModelCaller, server: GroqServer) -> None:
    caller.close()
    with pytest.raises(Interrupted):
        caller.call(PRIMARY, make_prepared(), ROOM)
    assert server.count() == 0


def test_a_stop_ends_the_wait_for_a_rate_limit(caller: ModelCaller, server: GroqServer) -> None:
    server.always(PRIMARY, rate_limited(50))
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            caller.call(PRIMARY, make_prepared(), ROOM)
        except Interrupted as error:
            ended.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: server.count(status=429) == 1)
    caller.close()
    thread.join(30)
    assert len(ended) == 1


def test_a_call_that_a_stop_cuts_off_is_interrupted(
    make_caller: MakeCaller, server: GroqServer
) -> None:
    caller = make_caller()
    server.always(PRIMARY, drop().after(5))

    def close_meanwhile() -> None:
        wait_until(lambda: server.count() == 1)
        caller.close()

    closing = threading.Thread(target=close_meanwhile)
    closing.start()
    with pytest.raises(Interrupted):
        caller.call(PRIMARY, make_prepared(), ROOM)
    closing.join()


def test_a_stop_cuts_off_a_call_that_is_never_answered(
    make_caller: MakeCaller, server: GroqServer
) -> None:
    caller = make_caller(timeout_seconds=60)
    server.always(PRIMARY, hang())
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            caller.call(PRIMARY, make_prepared(), ROOM)
        except Interrupted as error:
            ended.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: server.count() == 1)
    caller.close()
    thread.join(30)
    assert len(ended) == 1
