"""Text is made clean in time, whatever it is made of."""

import unicodedata

import pytest

from penstock.text.charsets import VALUE_CHARS, clean_metadata, clean_text


@pytest.mark.parametrize(
    "mark", ["\u0301\u0327", "\u0f73", "\U0001d165\u0316", "\u0327" * 10 + "\u0301" * 10]
)
def test_a_flood_of_combining_marks_is_thinned_out(mark: str) -> None:
    cleaned = clean_text("a" + mark * 100_000 + " end")
    assert cleaned.endswith(" end")
    assert len(cleaned) < 100


def test_marks_that_a_script_really_uses_all_stay() -> None:
    text = "re\u0301sume\u0301 " + "x" + "\u0301\u0327" * 10
    assert clean_text(text) == unicodedata.normalize("NFC", text)


def test_rare_letters_are_no_marks() -> None:
    text = "\U0001d5d4" * 100 + " e\u0301"
    assert clean_text(text) == unicodedata.normalize("NFC", text)


def test_no_value_of_the_metadata_is_longer_than_any_store_wants() -> None:
    flood = "name " * 1_000_000
    cleaned = clean_metadata({"columns": [flood, "years"], "more": {"text": flood}})
    assert cleaned["columns"][1] == "years"
    assert len(cleaned["columns"][0]) <= VALUE_CHARS
    assert len(cleaned["more"]["text"]) <= VALUE_CHARS
