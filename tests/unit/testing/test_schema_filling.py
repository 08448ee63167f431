from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AnyUrl, BaseModel, Field, TypeAdapter

from penstock.testing.answers import SchemaFiller


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    city: str
    code: Annotated[str, Field(min_length=30, max_length=40)]


class Person(BaseModel):
    name: str
    colour: Colour | None
    addresses: list[Address]
    friends: list["Person"]
    boss: "Person | None"


WANTED = [
    Person,
    Literal["only"],
    set[Colour],
    bool,
    None,
    date,
    datetime,
    UUID,
    AnyUrl,
    int | None,
    dict[str, int],
    Annotated[int, Field(gt=1, le=2)],
    Annotated[int, Field(lt=-5)],
    Annotated[int, Field(ge=100, multiple_of=7)],
    Annotated[float, Field(gt=0.1, lt=0.2)],
    Annotated[float, Field(ge=1000)],
    Annotated[list[int], Field(min_length=5, max_length=6)],
    Annotated[list[str], Field(max_length=1)],
    Annotated[list[Literal["a"]], Field(min_length=3)],
]


def fill(schema: dict[str, Any]) -> Any:
    return SchemaFiller(schema, ("senior", "engineer", "for", "pumps")).fill(schema, "answer")


@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_what_is_filled_in_validates(wanted: Any) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(wanted)
    adapter.validate_python(fill(adapter.json_schema()))


def test_lists_do_not_repeat_themselves() -> None:
    words = fill({"type": "array", "items": {"type": "string"}})
    assert len(words) == len(set(words)) == 2


def test_nullable_fields_are_filled() -> None:
    assert fill({"type": ["string", "null"]})
    assert fill({"anyOf": [{"type": "null"}, {"type": "integer"}]})


def test_parts_that_all_hold_are_put_together() -> None:
    part = {"properties": {"a": {"const": 1}}}
    other = {"type": "object", "properties": {"b": {"const": 2}}}
    assert fill({"allOf": [part, other]}) == {"a": 1, "b": 2}
