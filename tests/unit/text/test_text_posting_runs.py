"""A posting that lost its lines gets them back at the headings inside it."""

from penstock.text.extract import extract_web_page
from penstock.text.postings.blocks import join_blocks, read_blocks
from tests.unit.text.factories import PARAGRAPH, make_posting, make_posting_page

RUN = (
    f"{PARAGRAPH} {PARAGRAPH} Basic Qualifications: 3 years of experience with corn. "
    "Preferred Qualifications: Boots. Wir bieten: Brot."
)


def test_headings_with_a_colon_start_lines_of_their_own() -> None:
    assert join_blocks(read_blocks(RUN)).split("\n") == [
        f"{PARAGRAPH} {PARAGRAPH}",
        "Basic Qualifications",
        "3 years of experience with corn.",
        "Preferred Qualifications",
        "Boots.",
        "Wir bieten",
        "Brot.",
    ]


def test_the_same_words_in_a_sentence_break_nothing() -> None:
    text = f"{PARAGRAPH} {PARAGRAPH} Requirements change, and qualifications of mills differ."
    assert join_blocks(read_blocks(text)) == text


def test_a_posting_in_one_line_still_gives_its_requirements() -> None:
    posting = make_posting(description=RUN, qualifications=None)
    metadata = extract_web_page(make_posting_page(posting)).metadata
    assert metadata["requirements"].startswith("Basic Qualifications\n3 years")
    assert metadata["requirements"].endswith("Boots.")
    assert "Brot" not in metadata["description"]
