"""Which pages are taken for postings when neither their address nor their titles speak of jobs, and
whose posting it is."""

import pytest

from penstock.documents import ExtractedText
from penstock.rules.detection import detect_profile
from penstock.text.extract import extract_web_page
from tests.unit.text.factories import make_page, make_raw
from tests.unit.text.test_text_posting_platforms import items

ADDRESS = "https://www.millbrook.example/miller"
INTRO = (
    "Millbrook grinds wheat and rye for forty bakeries in the valley. We have outgrown the mill "
    "and the one person who runs it, so there is room for a second pair of hands."
)
PARTS = (
    ("A week at the mill", ("Grind two tonnes a day", "Clean the stones", "Load the van")),
    ("What would make us say yes", ("Two years at a mill", "Strong arms", "A driving licence")),
    ("In return", ("28 days of holiday", "A loaf a day")),
)
TERMS = "Full-time, 38 hours a week"


def lists(shape: str) -> str:
    if shape == "builder":
        texts = [INTRO, *(line for head, rows in PARTS for line in (f"<b>{head}</b>", *rows))]
        known = {row for _, rows in PARTS for row in rows}
        marked = (f"\u200b• {text}" if text in known else text for text in texts)
        return "".join(f"<div><p><span>{text}</span></p></div>" for text in marked)
    heading = "<h2>{}</h2>" if shape == "headings" else "<p><strong>{}</strong></p>"
    return f"<p>{INTRO}</p>" + "".join(heading.format(head) + items(rows) for head, rows in PARTS)


def read(body: str, head: str = "<title>Miller</title>") -> ExtractedText:
    return extract_web_page(make_raw(make_page(f"<h1>Miller</h1>{body}", head), ADDRESS))


@pytest.mark.parametrize("shape", ["headings", "emphasis", "builder"])
def test_headed_lists_and_terms_of_employment_make_a_posting_whatever_the_headings_say(
    shape: str,
) -> None:
    found = read(f"<p>{TERMS}</p>{lists(shape)}")
    assert found.metadata["schema_type"] == "JobPosting"
    assert "Strong arms" in found.metadata["requirements"]
    assert found.metadata["employment_type"] == TERMS


def test_headed_lists_without_terms_of_employment_make_none() -> None:
    body = lists("headings").replace("28 days of holiday", "A bag of flour")
    assert "schema_type" not in read(body).metadata


def test_an_article_of_paragraphs_about_work_makes_none() -> None:
    story = f"<p>The miller works {TERMS.lower()}, and says that the requirements grow.</p>" * 8
    assert "schema_type" not in read(story).metadata


@pytest.mark.parametrize(
    ("head", "around"),
    [
        ("<title>Miller – Mill Brook</title>", ""),
        ("<title>Miller</title><meta property='og:site_name' content='Mill Brook'>", ""),
        ("<title>Miller at Mill Brook</title>", ""),
        ("<title>Miller</title>", "<img src='/logo.png' alt='Mill Brook logo'>"),
        ("<title>Miller</title>", "<dl><dt>Employer</dt><dd>Mill Brook</dd></dl>"),
        ("<title>Miller</title>", "<a href='/'>Mill Brook</a><footer>© 2024 Mill Brook</footer>"),
    ],
)
def test_the_employer_stands_in_many_places(head: str, around: str) -> None:
    found = read(f"{around}<p>{TERMS}</p>{lists('headings')}", head)
    assert found.metadata["company"] == "Mill Brook"


def test_the_name_that_a_page_repeats_wins_over_others_beside_the_title() -> None:
    head = "<title>Miller | Bakers' Board | Millbrook</title>"
    around = "<img src='/logo.svg' alt='Millbrook'><footer><p>© Millbrook, Ulm</p></footer>"
    assert read(f"{around}{TERMS}{lists('headings')}", head).metadata["company"] == "Millbrook"


def test_a_plain_text_of_headed_lists_and_terms_is_detected_as_a_posting() -> None:
    parts = "\n".join("\n".join((head, *(f"- {row}" for row in rows))) for head, rows in PARTS)
    text = f"Miller\n{TERMS}\n{INTRO}\n{parts}\n"
    assert detect_profile(text).profile == "job_posting"
    assert detect_profile(text.replace(TERMS, "").replace("days of holiday", "")).profile == (
        "document"
    )
