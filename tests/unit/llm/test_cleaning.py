"""Cleaning tidies what any model answers."""

from typing import Any

import pytest
from pydantic import BaseModel

from penstock.llm.answers import Caps, clean_fields, clean_list, clean_years, storable_text
from penstock.llm.profiles import Profile, profile_named


def clean_resume(**fields: Any) -> dict[str, Any]:
    return clean_fields(profile_named("resume"), fields, Caps())


def test_thirty_skills_with_case_doubles_become_twelve_first_spellings() -> None:
    skills = [spelling for i in range(15) for spelling in (f"Skill{i}", f" SKILL{i} ")]
    cleaned = clean_resume(primary_skills=skills)
    assert cleaned["primary_skills"] == [f"Skill{i}" for i in range(12)]


def test_doubles_are_removed_before_the_cap_is_applied() -> None:
    assert clean_list(["a", "A", "b", "B", "c"], 3) == ["a", "b", "c"]


def test_items_that_are_empty_or_no_text_are_dropped() -> None:
    assert clean_list(["", "  ", None, 3, {"name": "x"}, "kept"]) == ["kept"]


def test_each_list_has_its_own_cap() -> None:
    many = [f"item {i}" for i in range(40)]
    cleaned = clean_resume(recent_job_titles=many, certifications=many, industries=many)
    assert [len(values) for values in cleaned.values()] == [3, 10, 5]


def test_caps_can_be_set() -> None:
    caps = Caps(primary_skills=2)
    fields = {"primary_skills": ["a", "b", "c"]}
    assert clean_fields(profile_named("resume"), fields, caps) == {"primary_skills": ["a", "b"]}


def test_the_skills_of_a_posting_share_the_cap_of_skills() -> None:
    fields = {"skills": list("abcdefghijklmnop"), "requirements": list("abcdefghijklmnop")}
    cleaned = clean_fields(profile_named("job_posting"), fields, Caps())
    assert (len(cleaned["skills"]), len(cleaned["requirements"])) == (12, 16)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (8, 8),
        (8.0, 8),
        (7.5, 7.5),
        ("8", 8),
        ("8+ years", 8),
        ("5-7", "5-7"),
        ("5 – 7 years", "5-7"),
        ("5 to 7", "5-7"),
        ("7-7", 7),
        ("many", None),
        (-1, None),
        (1999, None),
        (10**400, None),
        (float("nan"), None),
        (True, None),
        ([], None),
        (None, None),
    ],
)
def test_years_are_a_number_or_a_range_kept_as_text(value: object, expected: object) -> None:
    assert clean_years(value) == expected
    assert type(clean_years(value)) is type(expected)


def test_unknown_fields_are_dropped() -> None:
    assert clean_resume(primary_skills=["a"], shoe_size=44) == {"primary_skills": ["a"]}


def test_texts_are_trimmed_and_empty_ones_become_null() -> None:
    fields = {"title": "  Engineer ", "company": " "}
    cleaned = clean_fields(profile_named("job_posting"), fields, Caps())
    assert cleaned == {"title": "Engineer", "company": None}


def test_the_records_and_numbers_of_an_own_profile_stay_as_they_are() -> None:
    class Fields(BaseModel):
        lines: list[dict[str, int]]
        amounts: list[float]

    fields = {"lines": [{"a": 1}, {"a": 1}], "amounts": [1.5, 1.5]}
    assert clean_fields(Profile("own", Fields, "Read."), fields, Caps()) == fields


def test_characters_that_no_database_takes_are_replaced() -> None:
    assert storable_text("a\0b\ud800c é") == "ab?c é"
