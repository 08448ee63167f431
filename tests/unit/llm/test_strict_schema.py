"""Schemas are restated as strict mode wants them, and the server takes them."""

import json
from collections.abc import Iterator
from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Literal, Optional

import pytest
from groq import Groq
from pydantic import BaseModel, Field

from penstock.llm.answers import Caps, judge_answer
from penstock.llm.profiles import Confidence, Profile, profile_named, profile_names
from penstock.llm.schema import fits_strict_mode, strict_schema
from penstock.testing import GroqServer


class Currency(StrEnum):
    EUR = "EUR"
    USD = "USD"


class Part(BaseModel):
    """One part of a machine."""

    title: str
    default: int = Field(3, ge=1, le=9, description="How many.")
    parts: list["Part"] = []


class Card(BaseModel):
    kind: Literal["card"]
    number: str = Field(pattern=r"^\d{4}$", min_length=4)


class Cash(BaseModel):
    kind: Literal["cash"]


class Machine(BaseModel):
    title: str | None = None
    due: date
    currency: Currency = Currency.EUR
    main: Part = Field(description="The largest.")
    spare: Part | None = Field(None, description="Beside it.")
    size: tuple[int, str]
    paid: Annotated[Card | Cash, Field(discriminator="kind")]
    codes: list[Annotated[int, Field(gt=0)]] = Field(default_factory=list, max_length=4)
    price: float | None = Field(None, examples=[1.5, 2.5])
    confidence: Confidence


class Free(BaseModel):
    counts: dict[str, int] = {}
    confidence: Confidence


class Untyped(BaseModel):
    anything: Any = None


@pytest.fixture
def client() -> Iterator[Groq]:
    with (
        GroqServer() as server,
        Groq(api_key="key", base_url=server.base_url, max_retries=0) as client,
    ):
        yield client


def ask(client: Groq, model: type[BaseModel]) -> str:
    completion = client.chat.completions.create(
        model="openai/gpt-oss-20b",
        messages=[{"role": "user", "content": "A senior engineer for pumps in Berlin"}],
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "fields", "strict": True, "schema": strict_schema(model)},
        },
    )
    return completion.choices[0].message.content or ""


def keywords(schema: Any) -> set[str]:
    """Every keyword used in a schema; the names of fields are no keywords."""
    if not isinstance(schema, dict):
        return set()
    found = set(schema)
    for named in ("properties", "$defs"):
        found |= {word for part in schema.get(named, {}).values() for word in keywords(part)}
    return found.union(
        *(keywords(part) for part in schema.get("anyOf", [])), keywords(schema.get("items"))
    )


@pytest.mark.full_suite
@pytest.mark.parametrize("name", profile_names())
def test_the_server_takes_every_built_in_schema_and_its_answer_is_accepted(
    client: Groq, name: str
) -> None:
    profile = profile_named(name)
    judged = judge_answer(profile, ask(client, profile.schema), Caps(), 0.65)
    assert judged.reason is None
    assert fits_strict_mode(profile.schema)


@pytest.mark.full_suite
def test_the_server_takes_a_nested_schema_of_a_user(client: Groq) -> None:
    fields = json.loads(ask(client, Machine))
    assert fields.keys() == Machine.model_fields.keys()
    assert fits_strict_mode(Machine)


def test_only_words_of_the_strict_dialect_are_used() -> None:
    allowed = {"type", "properties", "required", "additionalProperties", "items", "enum"}
    allowed |= {"anyOf", "$ref", "$defs", "description"}
    for model in (Machine, Part, *(profile_named(name).schema for name in profile_names())):
        assert keywords(strict_schema(model)) <= allowed


def test_fields_called_like_keywords_stay() -> None:
    part = strict_schema(Part)
    assert list(part["properties"]) == part["required"] == ["title", "default", "parts"]
    assert part["properties"]["title"] == {"type": "string"}
    assert "title" not in part


def test_what_was_optional_may_be_null_and_a_list_may_be_empty() -> None:
    fields = strict_schema(Machine)["properties"]
    assert fields["title"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert fields["currency"] == {"anyOf": [{"$ref": "#/$defs/Currency"}, {"type": "null"}]}
    assert fields["codes"]["type"] == "array"
    assert fields["due"]["type"] == "string"


def test_a_description_is_kept_beside_a_reference() -> None:
    fields = strict_schema(Machine)["properties"]
    assert fields["main"] == {"anyOf": [{"$ref": "#/$defs/Part"}], "description": "The largest."}
    assert fields["spare"]["description"] == "Beside it."


@pytest.mark.parametrize(
    ("path", "note"),
    [
        ("due", "(as date)"),
        ("codes", "(4 items or fewer)"),
        ("price", "(for example 1.5, 2.5)"),
        ("confidence", "complete, 0 to 1. (at least 0; at most 1)"),
    ],
)
def test_limits_are_in_the_description(path: str, note: str) -> None:
    assert strict_schema(Machine)["properties"][path]["description"].endswith(note)


def test_unions_are_options_and_constants_enumerations() -> None:
    schema = strict_schema(Machine)
    options = schema["properties"]["paid"]["anyOf"]
    assert options == [{"$ref": "#/$defs/Card"}, {"$ref": "#/$defs/Cash"}]
    assert schema["$defs"]["Cash"]["properties"]["kind"]["enum"] == ["cash"]
    assert schema["properties"]["size"]["items"]["anyOf"][1] == {"type": "string"}


@pytest.mark.full_suite
def test_a_model_that_contains_itself_has_its_fields_at_the_root(client: Groq) -> None:
    schema = strict_schema(Part)
    assert schema["type"] == "object"
    assert schema["properties"]["parts"]["items"] == {"$ref": "#/$defs/Part"}
    assert json.loads(ask(client, Part)).keys() == Part.model_fields.keys()


@pytest.mark.parametrize("model", [Free, Untyped])
def test_free_keys_and_any_type_do_not_fit(model: type[BaseModel]) -> None:
    assert not fits_strict_mode(model)


def test_free_keys_stay_in_the_schema() -> None:
    counts = strict_schema(Free)["properties"]["counts"]["anyOf"][0]
    assert counts == {"type": "object", "additionalProperties": {"type": "integer"}}


def test_a_schema_is_made_once() -> None:
    assert strict_schema(Machine) is strict_schema(Machine)


def test_a_null_for_an_optional_field_is_judged_as_its_default() -> None:
    class Fields(BaseModel):
        country: str = "DE"
        part: Optional[Part] = None  # noqa: UP045 (users write it so)
        confidence: Confidence

    assert {"type": "null"} in strict_schema(Fields)["properties"]["country"]["anyOf"]
    answer = '{"country": null, "part": {"title": "a", "default": null}, "confidence": 1}'
    judged = judge_answer(Profile("own", Fields, "Read."), answer, Caps(), 0.65)
    assert judged.fields == {"country": "DE", "part": {"title": "a", "default": 3, "parts": []}}
