"""How the rules read any other document."""

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.documents import Extraction, ExtractionRequest
from penstock.rules import RulesExtractor

from .scoring import TODAY

BODY = (
    "\n\nBees remember flowers. A bee that forgets its flowers goes hungry, and so does its hive.\n"
    "Other insects keep no hive and remember less than bees."
)


def read(head: str, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    request = ExtractionRequest(head + BODY, "document", metadata=metadata or {})
    outcome = RulesExtractor(today=TODAY).extract([request])[0]
    assert isinstance(outcome, Extraction)
    return dict(outcome.fields)


@pytest.mark.parametrize(
    ("written", "date"),
    [
        ("12 March 2024", "2024-03-12"),
        ("March 12, 2024", "2024-03-12"),
        ("2024-03-12", "2024-03-12"),
        ("March 2024", "2024-03"),
        ("Version 2, 2024", "2024"),
        ("no date at all", None),
    ],
)
def test_a_date_is_as_exact_as_the_text(written: str, date: str | None) -> None:
    assert read(f"On Bees\n{written}")["date"] == date


@pytest.mark.parametrize(
    ("line", "authors"),
    [
        ("By Ada Byron", ["Ada Byron"]),
        (
            "Ada Byron, Mary S. Shelley and Jan van Eyck",
            ["Ada Byron", "Mary S. Shelley", "Jan van Eyck"],
        ),
        ("Authors: Ada Byron; Mary Shelley", ["Ada Byron", "Mary Shelley"]),
        ("Annual Report", []),
    ],
)
def test_authors_are_found_near_the_top(line: str, authors: list[str]) -> None:
    assert read(f"On Bees\n{line}")["authors"] == authors


def test_the_summary_is_the_first_sentences() -> None:
    assert read("On Bees")["summary"].startswith("Bees remember flowers. A bee that forgets")


def test_the_abstract_is_the_summary_where_there_is_one() -> None:
    abstract = "We follow bees for a year and find that they remember more than anybody thought."
    assert read(f"On Bees\n\nAbstract\n{abstract}\n\nMethods")["summary"].startswith(abstract)


def test_topics_recur_and_are_no_stop_words() -> None:
    topics = read("On Bees")["topics"]
    assert {"bees", "hive"} <= set(topics)
    assert not {"their", "than", "other"} & set(topics)


def test_stated_keywords_are_the_topics() -> None:
    assert read("On Bees\nKeywords: memory, flight; maps")["topics"] == ["memory", "flight", "maps"]


def test_facts_of_the_source_win_over_the_text() -> None:
    facts = {"title": "Wasps", "author": "Ada Byron", "date": "2021-10-05"}
    fields = read("On Bees\nBy Somebody Else\n1 May 1999", metadata=facts)
    assert (fields["title"], fields["authors"], fields["date"]) == (
        "Wasps",
        ["Ada Byron"],
        "2021-10-05",
    )
