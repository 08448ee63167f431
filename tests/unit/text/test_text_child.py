"""A child gives back no more than was asked for."""

from penstock.documents import ExtractedText, RawDocument
from penstock.text.custom import Extensions
from penstock.text.extract import METADATA_CHARS, extract_within
from tests.unit.text.factories import make_raw

TALKATIVE = f"{__name__}:talk"


def talk(raw: RawDocument) -> ExtractedText:
    many: list[list[str]] = [[]] * int(raw.content)
    return ExtractedText("words", metadata={"author": "Jane", "many": many, "pages": 3})


def extract(number: int) -> ExtractedText:
    return extract_within(
        make_raw(str(number)), extractor=TALKATIVE, text_chars=100, extensions=Extensions()
    )


def test_metadata_that_fits_is_left_as_it_is() -> None:
    assert extract(3).metadata == {"author": "Jane", "many": [[], [], []], "pages": 3}


def test_an_entry_without_room_in_the_metadata_is_left_out_of_it() -> None:
    extracted = extract(METADATA_CHARS)
    assert extracted.metadata == {"author": "Jane", "pages": 3, "truncated": True}
    assert extracted.text == "words"
