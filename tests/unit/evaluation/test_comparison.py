"""How found values compare with the right ones, by the type of their field."""

from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from penstock.evaluation.comparison import (
    Counts,
    Kind,
    Level,
    compare,
    is_right,
    kind_of,
    known_fields,
    words,
)
from penstock.llm.profiles import Confidence, Profile, profile_named


class Colour(Enum):
    RED = "red"


class Part(BaseModel):
    name: str
    price: float


class Everything(BaseModel):
    title: str | None = None
    amount: float | None = None
    years: int | float | str | None = None
    colour: Colour | None = None
    size: Literal["s", "m"] = "s"
    is_new: bool = False
    tags: list[str] | None = None
    parts: list[Part] = []
    part: Part | None = None
    confidence: Confidence


EVERYTHING = Profile("everything", Everything, "You read anything.")


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("title", Kind.TEXT),
        ("amount", Kind.NUMBER),
        ("years", Kind.NUMBER),
        ("colour", Kind.CHOICE),
        ("size", Kind.CHOICE),
        ("is_new", Kind.CHOICE),
        ("tags", Kind.LIST),
        ("parts", Kind.LIST),
        ("part", Kind.TEXT),
    ],
)
def test_the_type_of_a_field_says_how_it_is_compared(field: str, kind: Kind) -> None:
    assert kind_of(EVERYTHING, field) is kind


def test_the_confidence_is_not_compared() -> None:
    assert known_fields(profile_named("resume")) == (
        "primary_skills",
        "recent_job_titles",
        "years_experience_total",
        "certifications",
        "industries",
    )


def f1_of(kind: Kind, wanted: Any, found: Any) -> tuple[float | None, ...]:
    compared = compare(kind, wanted, found)
    return tuple(None if (f1 := compared[level].f1) is None else round(f1, 2) for level in Level)


@pytest.mark.parametrize(
    ("kind", "wanted", "found", "exact", "normalised", "soft"),
    [
        (Kind.TEXT, "Payroll lead", "Payroll lead", 1, 1, 1),
        (Kind.TEXT, "Développeur (m/f)", "DEVELOPPEUR", 0, 1, 0.5),
        (Kind.TEXT, "Senior Java developer", "Java developer", 0, 0, 0.8),
        (Kind.TEXT, "Lead", None, 0, 0, 0),
        (Kind.TEXT, None, "Lead", 0, 0, 0),
        (Kind.TEXT, None, "", None, None, None),
        (Kind.TEXT, "東京都", "東京", 0, 0, 0.8),
        (Kind.LIST, ["Java", ".NET"], ["java", "NET"], 0, 1, 1),
        (Kind.LIST, ["Java", "C#"], ["Java", "C"], 0.5, 0.5, 0.5),
        (Kind.LIST, ["Spring Boot"], ["Spring", "Boot"], 0, 0, 1),
        (Kind.LIST, [], ["Java"], 0, 0, 0),
        (Kind.LIST, None, [], None, None, None),
        (Kind.LIST, [{"name": "a", "price": 2}], [{"price": 2, "name": "a"}], 1, 1, 1),
        (Kind.NUMBER, 7, 7.0, 0, 1, 1),
        (Kind.NUMBER, 7, 8, 0, 0, 1),
        (Kind.NUMBER, 7, 9, 0, 0, 0),
        (Kind.NUMBER, 6, "5-7", 0, 0, 1),
        (Kind.NUMBER, 60_000, 60_500, 0, 0, 1),
        (Kind.NUMBER, 60_000, 61_000, 0, 0, 0),
        (Kind.NUMBER, None, None, None, None, None),
        (Kind.CHOICE, "full-time", "Full-Time", 0, 1, 1),
        (Kind.CHOICE, "full-time", "part-time", 0, 0, 0),
        (Kind.CHOICE, False, True, 0, 0, 0),
        (Kind.CHOICE, False, False, 1, 1, 1),
    ],
)
def test_values_are_compared_exactly_normalised_and_word_by_word(
    kind: Kind,
    wanted: Any,
    found: Any,
    exact: float | None,
    normalised: float | None,
    soft: float | None,
) -> None:
    assert f1_of(kind, wanted, found) == (exact, normalised, soft)


LONG = "You lead six payroll advisers, share the work out fairly and release the files to the bank."


@pytest.mark.parametrize(
    ("kind", "value", "wanted", "right"),
    [
        (Kind.LIST, "Java", ["SQL", "java"], True),
        (Kind.LIST, "Java developer", ["Senior Java developer"], False),
        (Kind.TEXT, LONG, f"{LONG} Apply now.", True),
        (Kind.TEXT, LONG, "You lead a team.", False),
        (Kind.NUMBER, 7, 6, True),
        (Kind.NUMBER, 7, None, False),
        (Kind.CHOICE, "senior", "junior", False),
    ],
)
def test_a_value_is_right_when_it_means_one_of_those_that_are_wanted(
    kind: Kind, value: Any, wanted: Any, right: bool
) -> None:
    assert is_right(kind, value, wanted) is right


def test_precision_and_recall_are_of_what_was_found_and_of_what_there_is() -> None:
    counts = compare(Kind.LIST, ["a", "b", "c", "d"], ["a", "b", "x"])[Level.EXACT]
    assert counts == Counts(2, 3, 4)
    assert (counts.precision, counts.recall) == (2 / 3, 0.5)
    assert (Counts().precision, Counts().recall, Counts().f1) == (None, None, None)


def test_words_have_no_case_and_no_accents_and_keep_the_signs_of_languages() -> None:
    assert words(["Crème, C++ & C#", {"a": "Node.js"}, None]) == [
        "creme", "c++", "c#", "node", "js",
    ]  # fmt: skip
