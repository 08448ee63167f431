import json
import subprocess
import sys
from typing import Any

import pytest
from pydantic import BaseModel

from penstock.llm.profiles import profile_named, profile_names
from penstock.testing import ChatRequest, GroqServer, Reply, cut_short

from .conftest import Ask, MakeClient, ask_with, content_of

pytestmark = pytest.mark.full_suite

JSON_MODE = {"type": "json_object"}


def wanting(schema: dict[str, Any], *, strict: bool = False) -> dict[str, Any]:
    named = {"name": "fields", "strict": strict, "schema": schema}
    return {"type": "json_schema", "json_schema": named}


def strict_schema_of(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    return {**schema, "additionalProperties": False, "required": list(schema["properties"])}


@pytest.mark.parametrize("name", profile_names())
def test_a_strict_schema_gets_an_answer_that_validates(ask: Ask, name: str) -> None:
    profile = profile_named(name)
    wanted = wanting(strict_schema_of(profile.schema), strict=True)
    content = content_of(ask("A senior engineer for pumps in Berlin", response_format=wanted))
    fields = profile.schema.model_validate_json(content or "")
    assert fields.model_dump()["confidence"] == 0.9
    assert not profile.missing(fields.model_dump())


def test_the_same_request_gets_the_same_answer_and_another_gets_another(ask: Ask) -> None:
    wanted = wanting(strict_schema_of(profile_named("document").schema))
    first, second, other = (
        content_of(ask(text, response_format=wanted)) for text in ("pump", "pump", "valve")
    )
    assert first == second != other


def test_json_mode_gets_an_object_and_plain_mode_a_sentence(ask: Ask) -> None:
    fields = json.loads(content_of(ask("JSON, please", response_format=JSON_MODE)) or "")
    assert fields["confidence"] == 0.9
    assert content_of(ask("Pumps")) == "This is about Pumps."


def test_an_answer_looks_like_groq_s(server: GroqServer, ask: Ask) -> None:
    server.always("small", Reply("12345678", reasoning="1234", cached_tokens=1))
    answer = ask("x" * 41)
    usage = answer.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert answer.x_groq is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (11, 3, 14)
    assert usage.prompt_tokens_details.cached_tokens == 1
    assert None not in (usage.queue_time, usage.prompt_time, usage.completion_time)
    assert usage.total_time == pytest.approx(
        (usage.prompt_time or 0) + (usage.completion_time or 0)
    )
    assert answer.id.startswith("chatcmpl-")
    assert str(answer.x_groq.id).startswith("req_")
    assert (answer.object, answer.model) == ("chat.completion", "small")
    assert answer.choices[0].message.reasoning == "1234"
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("reply", "content"),
    [
        (Reply("{not json"), "{not json"),
        (Reply({"a": "é"}), '{"a": "é"}'),
        (Reply({"a": 1}, style="fenced"), '```json\n{"a": 1}\n```'),
        (Reply({"a": 1, "b": 2}, without=("a",)), '{"b": 2}'),
        (Reply({"a": 1}, confidence=0.64), '{"a": 1, "confidence": 0.64}'),
        (Reply(lambda request: request.text), "Pumps in Berlin"),
        (Reply(""), ""),
        (Reply(None), None),
    ],
)
def test_content_is_what_the_script_says(
    server: GroqServer, ask: Ask, reply: Reply, content: str | None
) -> None:
    server.always("small", reply)
    assert content_of(ask()) == content


def test_chatty_content_has_the_json_in_its_middle(server: GroqServer, ask: Ask) -> None:
    server.always("small", Reply({"a": 1}, style="chatty"))
    before, _, after = (content_of(ask()) or "").partition('{"a": 1}')
    assert before
    assert after


def test_an_answer_at_the_token_limit_is_cut_and_says_so(server: GroqServer, ask: Ask) -> None:
    server.always("small", cut_short())
    answer = ask("JSON, please", response_format=JSON_MODE)
    assert answer.choices[0].finish_reason == "length"
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(content_of(answer) or "")


@pytest.mark.parametrize(
    "answer",
    [
        {"title": "Pump"},
        '{"title": "Pump"}',
        lambda request: {"title": request.text},
        lambda request: Reply({"title": request.text}),
    ],
)
def test_the_default_answer_can_be_given(make_client: MakeClient, answer: Any) -> None:
    with GroqServer(answer) as server:
        content = content_of(ask_with(make_client(server), "Pump"))
    assert content == '{"title": "Pump"}'


def test_an_answer_function_that_fails_is_named_in_a_server_error(
    server: GroqServer, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(request: ChatRequest) -> str:
        return str(request.body["temperature"])

    server.always("small", fail)
    with pytest.raises(Exception, match="the scripted answer raised KeyError: 'temperature'"):
        ask()
    server.always("small", Reply(fail))
    with pytest.raises(Exception, match="the scripted answer raised KeyError: 'temperature'"):
        ask()
    assert server.count(status=500) == len(caplog.records) == 2


def test_the_package_needs_neither_pytest_nor_a_web_framework() -> None:
    code = (
        "import sys, penstock.testing;"
        "print([name for name in ('pytest', 'fastapi', 'groq', 'prefect') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
