"""What people type is read as the profile's schema has it, and written as they would type it."""

from datetime import date
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from penstock.errors import UsageError
from penstock.llm.profiles import Confidence, Profile
from penstock.review.values import check_values, is_list, parse_value, write_value


class Line(BaseModel):
    what: str
    price: float


class Invoice(BaseModel):
    number: str | None = Field(None, description="As printed.")
    total: float | None = None
    paid: bool = False
    day: date | None = None
    kind: Literal["bill", "credit"] = "bill"
    notes: list[str] | None = None
    amounts: list[float] = []
    lines: list[Line] = []
    confidence: Confidence


INVOICE = Profile("invoice", Invoice, "You read an invoice.")


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        ("number", "007", "007"),
        ("number", "  null ", "null"),
        ("number", "", None),
        ("total", "99.5", 99.5),
        ("total", "", None),
        ("paid", "true", True),
        ("day", "2026-03-01", "2026-03-01"),
        ("kind", "credit", "credit"),
        ("notes", "one\n\n two, three ", ["one", "two, three"]),
        ("notes", '["one", "two"]', ["one", "two"]),
        ("notes", "", []),
        ("amounts", "1\n2.5", [1.0, 2.5]),
        ("amounts", "", []),
        ("lines", '{"what": "oats", "price": 2}', [{"what": "oats", "price": 2.0}]),
    ],
)
def test_a_value_is_read_as_its_type_and_written_so_that_it_is_read_again(
    name: str, typed: str, value: Any
) -> None:
    assert check_values(INVOICE, {name: parse_value(INVOICE, name, typed)}) == {name: value}
    again = parse_value(INVOICE, name, write_value(value))
    assert check_values(INVOICE, {name: again}) == {name: value}


@pytest.mark.parametrize(
    ("name", "typed", "told"),
    [
        ("total", "much", 'total cannot be "much" .*give null or number'),
        ("day", "soon", "day cannot be"),
        ("kind", "gift", "'bill' or 'credit'"),
        ("paid", "", "paid cannot be null"),
        ("lines", "oats", "lines cannot be"),
        ("colour", "red", "has no field 'colour': use number, total"),
    ],
)
def test_what_its_type_does_not_take_is_refused(name: str, typed: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        check_values(INVOICE, {name: parse_value(INVOICE, name, typed)})


def test_a_refusal_says_what_the_field_is_for() -> None:
    with pytest.raises(UsageError, match=r"number cannot be 5 .*: give null or string. As printed"):
        check_values(INVOICE, {"number": 5})


def test_lists_are_known() -> None:
    assert [name for name in INVOICE.field_names if is_list(INVOICE, name)] == [
        "notes",
        "amounts",
        "lines",
    ]
