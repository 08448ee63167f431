"""Each value is looked up in the text it comes from; what is not there is not supported."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from penstock.documents import Evidence, FieldEvidence, Match
from penstock.llm.evidence import (
    QUOTE_CHARS,
    SearchedText,
    find_evidence,
    find_field_evidence,
    record_confidence,
)
from penstock.llm.profiles import Confidence, Origin, Profile, field_origins
from penstock.rules.vocabulary import spellings_of

TEXT = (
    "Curriculum vitae\n\nGül Ōshima\nSenior Software-Engineer, R&D\n\n"
    "Since 2016 at Mühle & Söhne GmbH. Pay: 60.000 EUR, later $75k, once 1 250,50.\n"
    "She writes Golang and R, and knows Kubernets well.\n"
)


def find(value: object, text: str = TEXT, **options: Any) -> Evidence | None:
    return find_evidence(value, SearchedText(text), **options)


@pytest.mark.parametrize(
    ("value", "quote", "match"),
    [
        ("Gül Ōshima", "Gül Ōshima", Match.EXACT),
        ("gul oshima", "Gül Ōshima", Match.NORMALISED),
        ("senior software engineer", "Senior Software-Engineer", Match.NORMALISED),
        ("R", "R", Match.EXACT),
        ("Ōshima, Gül", "Gül Ōshima", Match.FUZZY),
        ("Kubernetes", "Kubernets", Match.FUZZY),
        ("MUHLE SOHNE GMBH", "Mühle & Söhne GmbH", Match.NORMALISED),
        (60_000, "60.000", Match.NORMALISED),
        (75_000.0, "75", Match.NORMALISED),
        (1250.5, "1 250,50", Match.NORMALISED),
    ],
)
def test_a_value_is_found_as_it_is_or_nearly(value: object, quote: str, match: Match) -> None:
    found = find(value)
    assert found is not None
    assert found.start is not None
    assert (found.quote, found.match) == (quote, match)
    assert TEXT[found.start : found.end] == quote


@pytest.mark.parametrize(
    "value", ["Fortran", "Go", "Chief Miller", "Since 2017", 61_000, "Senior Accountant", "ülle"]
)
def test_what_the_text_does_not_say_is_not_found(value: object) -> None:
    assert find(value) is None


def test_another_spelling_of_a_known_name_supports_it() -> None:
    found = find("Go", spellings=spellings_of)
    assert found is not None
    assert (found.quote, found.match) == ("Golang", Match.NORMALISED)


def test_in_scripts_without_blanks_a_part_of_a_line_is_found() -> None:
    found = find("東京", "勤務地は東京都です")
    assert found == Evidence(Match.EXACT, 4, 6, None, "東京")


def test_a_paragraph_is_found_by_its_lines_and_quoted_in_part() -> None:
    lines = [
        f"The {number}th task of the keeper is to look after the sluice." for number in "45678"
    ]
    text = "Intro.\n\n" + "\n\n".join(lines) + "\n\nOutro."
    found = find("- " + "\n- ".join(lines[:4]) + "\n- Nothing like it.", text)
    assert found is not None
    assert found.start == len("Intro.\n\n")
    assert found.quote is not None
    assert len(found.quote) <= QUOTE_CHARS
    assert found.quote.endswith("…")


def test_a_value_of_the_source_needs_no_place_in_the_text() -> None:
    searched = SearchedText("Nothing here.", said=("Weir Keeper - Acme", "42000"))
    assert find_evidence("acme", searched) == Evidence(Match.SOURCE, quote="Weir Keeper - Acme")
    assert find_evidence(42_000.0, searched) == Evidence(Match.SOURCE, quote="42000")


def test_offsets_are_those_of_the_stored_text_and_pages_are_known() -> None:
    searched = SearchedText("two three", start=4, page_starts=(0, 4, 8))
    assert find_evidence("three", searched) == Evidence(Match.EXACT, 8, 13, 3, "three")


class Everything(BaseModel):
    name: str | None
    tags: list[str]
    level: Literal["low", "high"] | None
    count: int
    price: Annotated[float, Origin.STATED]
    summary: Annotated[str | None, Origin.DERIVED]
    done: bool
    confidence: Confidence


EVERYTHING = Profile("everything", Everything, "Read.", required=("name",))


def test_texts_are_stated_and_what_is_worked_out_is_derived_unless_the_type_says_otherwise() -> (
    None
):
    stated = {name for name, one in field_origins(EVERYTHING).items() if one is Origin.STATED}
    assert stated == {"name", "tags", "price"}


def test_a_derived_value_is_supported_without_a_place_and_a_stated_one_is_not() -> None:
    fields = {
        "name": "Ada",
        "tags": ["mill", "moon"],
        "level": "high",
        "count": 3,
        "price": 9.5,
        "summary": None,
        "done": True,
    }
    found = find_field_evidence(EVERYTHING, fields, SearchedText("Ada owns a mill."))
    derived = (Evidence(Match.DERIVED),)
    assert found["tags"] == (Evidence(Match.EXACT, 11, 15, None, "mill"), None)
    assert (found["level"], found["count"], found["done"]) == (derived, derived, derived)
    assert found["price"] == (None,)
    assert "summary" not in found


def test_the_confidence_of_a_record_is_the_mean_of_its_fields_and_required_ones_count_twice() -> (
    None
):
    evidence = {"name": FieldEvidence(0.9), "tags": FieldEvidence(0.6)}
    assert record_confidence(EVERYTHING, evidence, 0.1) == 0.8
    assert record_confidence(EVERYTHING, {"name": FieldEvidence(0.65)}, 0.1) == 0.65
    assert record_confidence(EVERYTHING, {}, 0.4) == 0.4


def test_evidence_is_stored_short_and_read_as_it_was() -> None:
    stored = FieldEvidence(
        0.75, (Evidence(Match.FUZZY, 3, 9, 2, "a quote"), Evidence(Match.DERIVED), None)
    )
    assert stored.to_json()["places"] == [["fuzzy", 3, 9, 2, "a quote"], ["derived"], None]
    assert FieldEvidence.from_json(stored.to_json()) == stored
    assert stored.unsupported
    assert not stored.first(2).unsupported
