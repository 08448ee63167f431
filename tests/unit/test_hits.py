"""A hit says where its passage stands, and opens the document there."""

import pytest

from entrypoints.dashboard.rendering import environment
from penstock.search.query import Hit


def make_hit(**passage: object) -> Hit:
    whole = {"text": "Zinc anodes - no rust\nmore", "start": 0, "end": 9, "page": None}
    return Hit("id", "Title", None, 1.0, "", (), whole | {"heading_path": []} | passage)


@pytest.mark.parametrize(
    ("passage", "place"),
    [
        ({}, ""),
        ({"page": 3}, "page 3"),
        ({"heading_path": ["Plant", "Pumps"]}, "Plant › Pumps"),
        ({"page": 3, "heading_path": ["Plant"]}, "page 3 · Plant"),
    ],
)
def test_a_hit_names_page_and_headings(passage: dict[str, object], place: str) -> None:
    assert make_hit(**passage).place == place


def test_a_passage_further_down_is_named_in_the_address_of_its_document() -> None:
    fragment = environment.filters["fragment"]

    assert fragment(make_hit(start=0)) == ""
    assert fragment(make_hit(start=5000)) == "#:~:text=Zinc%20anodes%20%2D%20no"
