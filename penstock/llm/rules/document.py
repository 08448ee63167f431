"""The general document profile by rules."""

import re
from collections.abc import Iterator
from datetime import date
from itertools import islice

from penstock.llm.extractor import Question, cut_text
from penstock.llm.rules.answer import Answer
from penstock.llm.rules.byline import find_authors, find_date
from penstock.llm.rules.confidence import settle
from penstock.llm.rules.employer import Found, read_labels
from penstock.llm.rules.facts import text_fact
from penstock.llm.rules.layout import Line, Part, Reading
from penstock.llm.rules.topics import find_topics

_TITLE_WORDS = 20
_SUMMARY_CHARS = 400
_SUMMARY_SENTENCES = 3
_MIN_PROSE_CHARS = 60
_SENTENCES = re.compile(r"(?<=[.!?…])[\"”’)]*\s+(?=[\"“(]?[^\W\d_a-z])")
_INSTITUTION = re.compile(
    r"(?:(?:[A-Z]\w+\s+){1,3}University|University of [A-Z]\w+"
    r"|(?:Department|Faculty|Institute|School) of\b.*)\Z"
)
_BOILERPLATE = re.compile(
    r"cookie|all rights reserved|copyright|subscribe|sign up|newsletter|terms of use|privacy policy"
    r"|click here|skip to",
    re.IGNORECASE,
)


def answer_document(question: Question, reading: Reading, today: date) -> Answer:
    """What any text says about itself."""
    labels = read_labels(reading)
    title = _find_title(question, reading, labels)
    authors = find_authors(question, reading, labels)
    published = find_date(question, reading, labels, today)
    summary, summarised = _summarise(reading, title.value)
    topics, told = find_topics(reading.text, title.value or "", labels)
    fields = {
        "title": title.value,
        "authors": authors,
        "date": published.value,
        "summary": summary,
        "topics": topics,
    }
    supports = {
        "title": (0.30, title.support),
        "authors": (0.10, 1.0 if authors else 0.3),
        "date": (0.15, published.support),
        "summary": (0.25, summarised),
        "topics": (0.20, told),
    }
    usable = not question.profile.missing(fields)
    return Answer(fields, settle(supports, reading.text, usable=usable))


def _find_title(question: Question, reading: Reading, labels: dict[str, str]) -> Found:
    stated = text_fact(question.metadata, "title") or labels.get("title")
    if stated or question.title:
        return Found(stated or question.title, 1.0)
    for position, line in enumerate(reading.lines[:5]):
        words = len(line.text.split())
        if 1 < words <= _TITLE_WORDS and not line.bullet and _reads_as_title(line.text):
            first = position == 0 or line.text.startswith("#")
            return Found(line.text.strip("#*_ ="), 0.85 if first else 0.5)
    return Found(None, 0.0)


def _reads_as_title(text: str) -> bool:
    letters = sum(char.isalpha() or char.isspace() for char in text)
    return (
        letters / len(text) > 0.75
        and not text.endswith((".", ",", ";"))
        and ". " not in text
        and _INSTITUTION.match(text) is None
    )


def _summarise(reading: Reading, title: str | None) -> tuple[str | None, float]:
    announced = " ".join(line.text for line in reading.within(Part.SUMMARY))
    if len(announced) >= _MIN_PROSE_CHARS:
        return _first_sentences(announced), 1.0
    prose = list(islice(_prose(reading.lines, title), 4))
    return (_first_sentences(" ".join(prose)), 0.75) if prose else (None, 0.0)


def _prose(lines: tuple[Line, ...], title: str | None) -> Iterator[str]:
    for line in lines:
        long_enough = len(line.text) >= _MIN_PROSE_CHARS and not line.bullet and not line.heading
        if long_enough and line.text != title and not _BOILERPLATE.search(line.text):
            yield line.text


def _first_sentences(text: str) -> str:
    sentences = _SENTENCES.split(re.sub(r"\A(?:abstract|summary)[:.]?\s*", "", text, flags=re.I))
    return cut_text(" ".join(sentences[:_SUMMARY_SENTENCES]), _SUMMARY_CHARS)
