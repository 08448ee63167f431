"""A posting that lost its lines gets them back at the headings inside it."""

from penstock.text.extract import extract_web_page
from penstock.text.postings.blocks import Block, join_blocks, split_long_paragraphs
from tests.unit.text.factories import PARAGRAPH, make_posting, make_posting_page

RUN = (
    f"{PARAGRAPH} {PARAGRAPH} Basic Qualifications 3 years of experience with corn "
    "Knowledge of mills "
    "Preferred Qualifications: Boots. Mills Ltd is an equal opportunity employer."
)


def test_headings_and_closing_statements_start_lines_of_their_own() -> None:
    assert join_blocks(split_long_paragraphs([Block(RUN)])).split("\n") == [
        f"{PARAGRAPH} {PARAGRAPH}",
        "Basic Qualifications",
        "3 years of experience with corn Knowledge of mills",
        "Preferred Qualifications",
        "Boots.",
        "Mills Ltd is an equal opportunity employer.",
    ]


def test_the_same_words_in_a_sentence_break_nothing() -> None:
    text = f"{PARAGRAPH} {PARAGRAPH} Requirements change, and qualifications of mills differ."
    assert split_long_paragraphs([Block(text)]) == [Block(text)]


def test_a_posting_in_one_line_still_gives_its_requirements() -> None:
    posting = make_posting(description=RUN, qualifications=None)
    metadata = extract_web_page(make_posting_page(posting)).metadata
    assert metadata["requirements"].startswith("Basic Qualifications\n3 years")
    assert metadata["requirements"].endswith("Boots.")
    assert "equal opportunity" in metadata["description"]
