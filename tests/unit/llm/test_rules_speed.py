"""The rules are quick, and no text makes them slow."""

import time

import pytest

from penstock.documents import ExtractionRequest
from penstock.rules import RulesExtractor

from .scoring import TODAY, load_samples

PROSE = (
    "- Worked with the operations group on the monthly plan, wrote down what was decided and "
    "followed it up with everybody involved until it was done.\n"
)
UNITS = (
    *("A", "A-", "Ab ", "Ab, ", "1", "1,", "$5 salary ", "5 years ", "2019-", "jan 2019 - ", "("),
    *("as a ", "Certified A.", "Skills\na, ", "machine-", "Foo is a ", "By Foo Bar and ", "Lead/"),
    *("Head of aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\n", "\n", "hiring a b c "),
)
LIMIT_SECONDS = 10.0
"""Far above what is measured: this guards against patterns that never end, not against load."""


def text_of_5_kb(profile: str) -> str:
    head, tail = load_samples(profile)[0].request.text.rsplit("\n\n", 1)
    repeats = (5000 - len(head) - len(tail)) // len(PROSE)
    return f"{head}\n{PROSE * repeats}\n{tail}"


def seconds_for(request: ExtractionRequest) -> float:
    extractor = RulesExtractor(today=TODAY)
    started = time.perf_counter()
    extractor.extract([request])
    return time.perf_counter() - started


@pytest.mark.parametrize("profile", ["resume", "job_posting", "document"])
def test_a_text_of_5_kb_takes_about_a_millisecond(profile: str) -> None:
    request = ExtractionRequest(text_of_5_kb(profile), profile)
    seconds_for(request)
    best = min(seconds_for(request) for _ in range(30))
    print(f"\n{profile}: {best * 1000:.2f} ms for {len(request.text)} characters")  # noqa: T201
    assert best < 0.1


@pytest.mark.parametrize("profile", ["resume", "job_posting", "document"])
@pytest.mark.parametrize(
    "unit",
    UNITS,
)
def test_no_repetition_makes_a_pattern_explode(unit: str, profile: str) -> None:
    text = "word " * 30 + "\n" + unit * (12_000 // len(unit)) + " " * 5000 + "year $ pay"
    facts = {"title": text, "company": text, "date": text, "author": text, "requirements": text}
    assert seconds_for(ExtractionRequest(text, profile, text, facts)) < LIMIT_SECONDS
