"""One question to one model, and every way it can go wrong."""

import logging
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import BaseModel

from penstock.errors import ErrorClass, Interrupted, StagePaused
from penstock.llm.asking import Asker
from penstock.llm.breaker import Breaker
from penstock.llm.extractor import Question
from penstock.llm.profiles import Profile
from penstock.llm.trouble import CallFailed, EndpointDown, ModelGone, MustWait, TooLong
from penstock.testing import (
    Answer,
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
    MakeAsker,
    build_asker,
    make_answer,
    make_question,
)

pytestmark = pytest.mark.full_suite

ROOM = 1024


@pytest.fixture
def asker(make_asker: MakeAsker) -> Asker:
    return make_asker()


# What is asked


def test_a_question_is_sent_once_with_the_settings_of_the_chain(
    asker: Asker, server: GroqServer
) -> None:
    asker.ask(PRIMARY, make_question(), ROOM)
    [request] = server.requests
    assert (request.model, request.body["max_tokens"]) == (PRIMARY, ROOM)
    assert request.body["temperature"] == 0
    assert request.body["reasoning_effort"] == "low"
    assert request.response_kind == "json_schema"
    assert request.json_schema["strict"] is True


def test_a_reply_tells_its_tokens_and_its_time(asker: Asker, server: GroqServer) -> None:
    server.script(PRIMARY, [Reply(make_answer(), cached_tokens=7).after(0.05)])
    reply = asker.ask(PRIMARY, make_question(), ROOM)
    assert reply.prompt_tokens == server.requests[0].prompt_tokens
    assert reply.completion_tokens > 0
    assert reply.cached_tokens == 7
    assert 0.05 <= reply.seconds < 5
    assert reply.truncated is False


def test_a_reply_that_met_its_limit_says_so(asker: Asker, server: GroqServer) -> None:
    server.script(PRIMARY, [cut_short()])
    assert asker.ask(PRIMARY, make_question(), ROOM).truncated is True


@pytest.mark.parametrize("content", [None, ""])
def test_a_reply_may_hold_nothing(asker: Asker, server: GroqServer, content: str | None) -> None:
    server.script(PRIMARY, [Reply(content)])
    assert not asker.ask(PRIMARY, make_question(), ROOM).content


def test_content_that_is_no_text_is_no_content(asker: Asker, server: GroqServer) -> None:
    parts = b'{"choices": [{"message": {"content": [{"type": "text", "text": "{}"}]}}]}'
    server.script(PRIMARY, [Page(200, parts, media_type="application/json")])
    assert asker.ask(PRIMARY, make_question(), ROOM).content is None


def test_an_answer_without_any_count_of_tokens_is_an_answer(
    asker: Asker, server: GroqServer
) -> None:
    body = b'{"choices": [{"message": {"content": "{}"}}], "usage": null}'
    server.script(PRIMARY, [Page(200, body, media_type="application/json")])
    reply = asker.ask(PRIMARY, make_question(), ROOM)
    assert (reply.content, reply.prompt_tokens, reply.completion_tokens) == ("{}", 0, 0)


def test_an_answer_with_a_wrong_content_type_is_read_all_the_same(
    asker: Asker, server: GroqServer
) -> None:
    server.script(PRIMARY, [Reply(make_answer()).labelled("text/html")])
    assert asker.ask(PRIMARY, make_question(), ROOM).content


def test_no_more_calls_are_under_way_than_allowed(
    make_asker: MakeAsker, server: GroqServer
) -> None:
    asker = make_asker(concurrency=3)
    server.always(PRIMARY, Reply(make_answer()).after(0.05))
    threads = [
        threading.Thread(target=asker.ask, args=(PRIMARY, make_question(), ROOM)) for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.peak_concurrency == 3


# How JSON is asked for


def test_a_model_without_strict_mode_is_asked_in_json_mode_and_told_the_schema(
    asker: Asker, server: GroqServer
) -> None:
    asker.ask("llama", make_question(), ROOM)
    [request] = server.requests
    assert request.response_kind == "json_object"
    assert "reasoning_effort" not in request.body
    assert "primary_skills" in str(request.messages[0]["content"])


def test_a_model_that_refuses_json_schema_is_asked_in_json_mode_from_then_on() -> None:
    with GroqServer(make_answer(), without_json_schema=[PRIMARY]) as server:
        asker = build_asker(server)
        for _ in range(2):
            assert asker.ask(PRIMARY, make_question(), ROOM).content
        asker.close()
        kinds = [request.response_kind for request in server.requests]
    assert kinds == ["json_schema", "json_object", "json_object"]


def test_a_model_that_refuses_reasoning_effort_is_asked_without() -> None:
    with GroqServer(make_answer(), without_reasoning_effort=[PRIMARY]) as server:
        asker = build_asker(server)
        asker.ask(PRIMARY, make_question(), ROOM)
        asker.close()
        efforts = [request.body.get("reasoning_effort") for request in server.requests]
    assert efforts == ["low", None]


def test_a_model_that_refuses_any_format_is_asked_in_plain_words(
    asker: Asker, server: GroqServer
) -> None:
    server.always(PRIMARY, bad_request("no formats here"), when=lambda r: r.response_kind != "text")
    for _ in range(2):
        assert asker.ask(PRIMARY, make_question(), ROOM).content
    kinds = [request.response_kind for request in server.requests]
    assert kinds == ["json_schema", "json_object", "text", "text"]


def test_a_model_that_refuses_everything_fails_the_call(asker: Asker, server: GroqServer) -> None:
    server.always(PRIMARY, bad_request("never"))
    with pytest.raises(CallFailed, match="never") as raised:
        asker.ask(PRIMARY, make_question(), ROOM)
    assert raised.value.reason == "bad_request"
    assert server.count() == 3


def test_a_question_that_is_refused_in_every_form_changes_nothing_for_others(
    asker: Asker, server: GroqServer
) -> None:
    server.always(PRIMARY, bad_request("this text will not do"), when="unspeakable")
    with pytest.raises(CallFailed):
        asker.ask(PRIMARY, make_question("unspeakable " * 20), ROOM)
    asker.ask(PRIMARY, make_question(), ROOM)
    assert server.requests[-1].response_kind == "json_schema"


def test_one_models_refusal_is_not_held_against_another(asker: Asker, server: GroqServer) -> None:
    server.always(PRIMARY, bad_request("no"), when=lambda r: r.response_kind == "json_schema")
    asker.ask(PRIMARY, make_question(), ROOM)
    asker.ask(FALLBACK, make_question(), ROOM)
    assert server.requests[-1].response_kind == "json_schema"


class Anything(BaseModel):
    """Strict mode cannot say this."""

    values: dict[str, int]
    confidence: float


def test_a_schema_that_strict_mode_cannot_say_is_asked_in_json_mode_with_little_reasoning(
    asker: Asker, server: GroqServer
) -> None:
    own = Profile("anything", Anything, "You read anything.")
    asker.ask(PRIMARY, Question(own, "x" * 100), ROOM)
    asker.ask(PRIMARY, make_question(), ROOM)
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
        (Page(301, b""), "server_error", ErrorClass.UNAVAILABLE),
        (hang(), "timeout", ErrorClass.TIMEOUT),
        (Reply().dribbled(20), "timeout", ErrorClass.TIMEOUT),
        (json_validate_failed(), "invalid_json", ErrorClass.UNKNOWN),
    ],
)
def test_a_call_that_fails_says_why_and_how_long_it_took(
    make_asker: MakeAsker, server: GroqServer, answer: Answer, reason: str, kind: ErrorClass
) -> None:
    asker = make_asker(timeout_seconds=0.3 if reason == "timeout" else 30)
    server.always(PRIMARY, answer)
    with pytest.raises(CallFailed) as raised:
        asker.ask(PRIMARY, make_question(), ROOM)
    assert (raised.value.reason, raised.value.kind) == (reason, kind)
    assert 0 < raised.value.seconds < 5
    assert KEY not in str(raised.value)
    assert server.count() == 1


def test_an_endpoint_that_is_not_there_fails_the_call(server: GroqServer) -> None:
    asker = build_asker(server)
    server.close()
    with pytest.raises(CallFailed, match=PRIMARY) as raised:
        asker.ask(PRIMARY, make_question(), ROOM)
    asker.close()
    assert raised.value.kind is ErrorClass.UNAVAILABLE


@pytest.mark.parametrize("answer", [model_not_found(), model_decommissioned(), forbidden()])
def test_a_model_that_cannot_be_used_is_gone(
    asker: Asker, server: GroqServer, answer: Answer
) -> None:
    server.always(PRIMARY, answer)
    with pytest.raises(ModelGone, match=PRIMARY):
        asker.ask(PRIMARY, make_question(), ROOM)
    assert server.count() == 1


@pytest.mark.parametrize(
    "answer", [too_large(), bad_request("shorter, please", "context_length_exceeded")]
)
def test_a_question_that_is_too_long_is_told_so(
    asker: Asker, server: GroqServer, answer: Answer
) -> None:
    server.always(PRIMARY, answer)
    with pytest.raises(TooLong):
        asker.ask(PRIMARY, make_question(), ROOM)
    assert server.count() == 1


@pytest.mark.parametrize("answer", [invalid_api_key(), Page(403, b"no")])
def test_a_refused_key_pauses_at_once_and_names_the_setting(
    asker: Asker, server: GroqServer, answer: Answer
) -> None:
    server.always(PRIMARY, answer)
    with pytest.raises(StagePaused, match="GROQ_API_KEY") as raised:
        asker.ask(PRIMARY, make_question(), ROOM)
    assert KEY not in str(raised.value)
    assert server.count() == 1


def test_an_address_where_nobody_chats_pauses_and_names_the_setting(server: GroqServer) -> None:
    asker = build_asker(server)
    asker._client.base_url = f"{server.base_url}/elsewhere"
    with pytest.raises(StagePaused, match="EXTRACTION_BASE_URL"):
        asker.ask(PRIMARY, make_question(), ROOM)
    asker.close()


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
def test_a_rate_limit_is_waited_for_and_asked_again(
    asker: Asker, server: GroqServer, answer: Answer
) -> None:
    server.script(PRIMARY, [answer, answer])
    assert asker.ask(PRIMARY, make_question(), ROOM).content
    assert server.count(status=429) == 2


def test_a_retry_comes_no_earlier_than_told(asker: Asker, server: GroqServer) -> None:
    server.script(PRIMARY, [rate_limited(0.4)])
    asker.ask(PRIMARY, make_question(), ROOM)
    refused, taken = server.requests
    assert taken.at - refused.at >= 0.4


def test_a_long_wait_goes_back_to_the_queue(asker: Asker, server: GroqServer) -> None:
    server.script(PRIMARY, [rate_limited(90)])
    with pytest.raises(MustWait) as raised:
        asker.ask(PRIMARY, make_question(), ROOM)
    assert raised.value.seconds == 90


def test_the_quota_of_a_day_pauses_and_names_the_model(asker: Asker, server: GroqServer) -> None:
    server.script(PRIMARY, [daily_quota(4 * 3600)])
    with pytest.raises(StagePaused, match=r"quota for openai/gpt-oss-20b.*4\.0 h"):
        asker.ask(PRIMARY, make_question(), ROOM)


# An endpoint that is down


def test_an_endpoint_that_keeps_silent_is_left_alone_and_said_so(
    make_asker: MakeAsker, caplog: pytest.LogCaptureFixture
) -> None:
    asker = make_asker(breaker=Breaker(failures=2, open_seconds=60))
    asker.note_silence()
    with caplog.at_level(logging.WARNING), pytest.raises(EndpointDown):
        asker.note_silence()
    assert caplog.text.count("EXTRACTION_BASE_URL") == 1
    with pytest.raises(EndpointDown) as raised:
        asker.check_endpoint()
    assert 0 < raised.value.seconds <= 60


@pytest.mark.parametrize("answer", [make_answer(), too_large(), json_validate_failed()])
def test_any_answer_shows_that_the_endpoint_is_alive(
    make_asker: MakeAsker, server: GroqServer, answer: Answer
) -> None:
    breaker = Breaker(failures=1, open_seconds=60)
    asker = make_asker(breaker=breaker)
    breaker.failed()
    server.always(PRIMARY, answer)
    with suppress(TooLong, CallFailed):
        asker.ask(PRIMARY, make_question(), ROOM)
    assert not breaker.is_open


# Stopping


def test_a_closed_asker_asks_nothing(asker: Asker, server: GroqServer) -> None:
    asker.close()
    with pytest.raises(Interrupted):
        asker.ask(PRIMARY, make_question(), ROOM)
    assert server.count() == 0


def test_a_stop_ends_the_wait_for_a_rate_limit(asker: Asker, server: GroqServer) -> None:
    server.always(PRIMARY, rate_limited(50))
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            asker.ask(PRIMARY, make_question(), ROOM)
        except Interrupted as error:
            ended.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: server.count(status=429) == 1)
    asker.close()
    thread.join(10)
    assert len(ended) == 1


def test_a_call_that_a_stop_cuts_off_is_nobodys_fault(
    make_asker: MakeAsker, server: GroqServer
) -> None:
    asker = make_asker()
    server.always(PRIMARY, drop().after(0.3))
    timer = threading.Timer(0.1, asker.close)
    timer.start()
    with pytest.raises(Interrupted):
        asker.ask(PRIMARY, make_question(), ROOM)
    timer.join()
