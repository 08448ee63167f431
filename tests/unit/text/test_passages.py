"""Texts are cut by their structure, and every passage says where it stands."""

import random
import re
import string

import pytest

from penstock.documents import HEADINGS, PAGE_STARTS, Passage, RawDocument
from penstock.text.extract import extract_text
from penstock.text.passages import cut_passages, locate_headings

SENTENCE = "The gate lets through what the wheel can take. "


def cut(text: str, chars: int = 100, **metadata: object) -> list[str]:
    return [text[one.start : one.end] for one in cut_passages(text, chars, metadata)]


def test_a_short_text_is_one_passage() -> None:
    assert cut_passages("A short text.", 100, {}) == [Passage(0, 13)]


def test_a_text_without_words_has_no_passage() -> None:
    assert cut_passages(" \n\n ", 100, {}) == []


def test_a_long_text_is_cut_between_its_paragraphs_rather_than_in_them() -> None:
    paragraphs = [f"{name} paragraph. {SENTENCE.strip()}" for name in ("One", "Two", "Three")]

    assert cut("\n\n".join(paragraphs)) == paragraphs


def test_a_long_paragraph_is_cut_between_its_sentences() -> None:
    passages = cut(SENTENCE * 10)

    assert len(passages) == 5
    assert set(passages) == {(SENTENCE * 2).strip()}


def test_rows_of_a_table_stay_whole() -> None:
    rows = [f"pipe {number} | 12 bar | steel | in stock" for number in range(40)]

    assert [row for passage in cut("\n".join(rows)) for row in passage.split("\n")] == rows


def test_a_word_longer_than_a_passage_is_cut() -> None:
    assert "".join(cut("x" * 250)) == "x" * 250


def test_a_heading_begins_a_passage_and_stands_above_those_that_follow() -> None:
    text = f"Plant\n\n{SENTENCE * 2}\n\nPumps\n\n{SENTENCE * 4}"
    headings = [[0, 1], [text.index("Pumps"), 2]]

    passages = cut_passages(text, 130, {HEADINGS: headings})

    assert [text[one.start : one.end].split(maxsplit=1)[0] for one in passages] == [
        "Plant",
        "Pumps",
        "The",
    ]
    assert [one.heading for one in passages] == [("Plant",), ("Plant", "Pumps"), ("Plant", "Pumps")]


def test_a_heading_of_the_same_level_ends_the_part_of_the_one_before() -> None:
    text = "\n\n".join(f"{name}\n\n{SENTENCE * 2}" for name in ("Gates", "Pumps"))
    headings = [[0, 2], [text.index("Pumps"), 2]]

    passages = cut_passages(text, 120, {HEADINGS: headings})

    assert [one.heading for one in passages] == [("Gates",), ("Pumps",)]


def test_passages_say_the_page_they_begin_on() -> None:
    pages = [SENTENCE * 2, "", SENTENCE * 2]
    text = f"{pages[0]}\n\n{pages[2]}"
    third = len(pages[0]) + 2

    passages = cut_passages(text, 100, {PAGE_STARTS: [0, third, third]})

    assert [one.page for one in passages] == [1, 3]


@pytest.mark.parametrize("value", [None, "x", [1, "2"], [["a", "b"]], {"a": 1}, [[9999, 1]]])
def test_metadata_of_the_same_name_that_say_something_else_are_passed_over(value: object) -> None:
    assert cut("words", 100, **{HEADINGS: value, "pages": 3}) == ["words"]


def test_every_word_is_in_exactly_one_passage_and_none_is_too_long() -> None:
    chance = random.Random(7)
    for _ in range(300):
        signs = chance.choices([*string.ascii_lowercase, " ", "\n", "\n\n", ". "], k=2000)
        text, chars = "".join(signs), chance.randint(20, 400)
        starts = sorted(chance.sample(range(len(text)), 5))

        passages = cut_passages(
            text, chars, {PAGE_STARTS: [0, *starts], HEADINGS: [[one, 1] for one in starts]}
        )

        assert all(0 < one.end - one.start <= chars for one in passages)
        joined = "".join(text[one.start : one.end] for one in passages)
        assert re.sub(r"\s", "", joined) == re.sub(r"\s", "", text)


def test_headings_are_looked_up_as_whole_lines_in_their_order() -> None:
    text = "Pumps and gates\nPumps\nwords\nGates\nPumps"

    found = locate_headings(text, [(1, "Pumps"), (2, " Gates "), (2, "Turbines"), (2, "Pumps")])

    assert found == [[16, 1], [28, 2], [34, 2]]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plant.md", "# Plant\n\nWords.\n\n```\n# no heading\n```\n\n## Pumps\n\nMore words."),
        (
            "plant.html",
            f"<html><body><article><h1>Plant</h1><p>{SENTENCE * 9}</p><h2>Pumps</h2>"
            f"<p>{SENTENCE * 9}</p></article></body></html>",
        ),
    ],
)
def test_a_document_says_where_its_headings_are(name: str, content: str) -> None:
    found = extract_text(RawDocument(name, content.encode()))

    lines = [
        (found.text[start:].split("\n")[0], level) for start, level in found.metadata[HEADINGS]
    ]
    assert [(line.lstrip("# "), level) for line, level in lines] == [("Plant", 1), ("Pumps", 2)]
