"""The general document profile by rules: title, authors, date, topics."""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import date
from itertools import islice, pairwise

from penstock.llm.prompts import PreparedRequest, cut_text
from penstock.rules.answer import FoundValue, RulesAnswer, make_answer, text_fact
from penstock.rules.dates import MONTH_WORD, month_number
from penstock.rules.layout import ParsedText, Section
from penstock.rules.posting import find_stated, read_labels
from penstock.rules.vocabulary import read_words

_MAX_TOPICS = 6
_WORD = re.compile(r"[^\W\d_][^\W_]*(?:[-'’][^\W_]+)*")
_BYLINE_LINES = 12
# A date further along in a line belongs to the content, not to the document.
_BYLINE_CHARS = 120
_DATE = re.compile(
    r"(?<!\d)(?P<iso>(?:19|20)\d\d-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?)(?!\d)"
    rf"|\b(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\.?\s+(?:of\s+)?(?P<month>{MONTH_WORD})\.?,?\s+(?P<year>(?:19|20)\d\d)"
    rf"|\b(?P<month2>{MONTH_WORD})\.?\s+(?P<day2>[0-3]?\d)(?:st|nd|rd|th)?,?\s+(?P<year2>(?:19|20)\d\d)"
    rf"|\b(?P<month3>{MONTH_WORD})\.?,?\s+(?P<year3>(?:19|20)\d\d)",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?<![\d.,/-])(?:19|20)\d\d(?![\d.,]\d|\d|-\d)")
_CAPITALISED = r"[A-ZÀ-Þ][\w’'-]+"
_PERSON = (
    rf"(?:Dr\.?\s+|Prof\.?\s+)?{_CAPITALISED}"
    rf"(?:\s+(?:[A-ZÀ-Þ]\.|{_CAPITALISED}|van|von|de|der|la)){{1,3}}"
)
_PEOPLE = re.compile(rf"{_PERSON}(?:\s*(?:,|and|&|;|\s-\s)+\s*{_PERSON})*[,\d*†\s]*")
_BY = re.compile(rf"\b(?:[Bb]y|BY|[Ww]ritten by|[Aa]uthors?:?)\s+(?P<names>{_PEOPLE.pattern})")
_NAME_BREAK = re.compile(r"\s*(?:,|;|&|\band\b)\s*")
_DATE_LABELS = ("date", "published", "published on", "publication date", "last updated", "updated")
_NO_PERSON = re.compile(
    r"\b(?:University|Institute|Department|Inc|Report|Abstract|Introduction|Journal|Guide|Review|"
    r"Company|School|Center|Centre|Annual|Policy|Summary|Minutes|Meeting|Manual|Notes|The|Of|For|"
    r"In|How|Why|What|And|Team|Office|Committee|Council|January|February|March|April|June|July|"
    r"August|September|October|November|December|Version|Press|Release|New|Research|Study)\b"
)


def find_authors(request: PreparedRequest, parsed: ParsedText, labels: dict[str, str]) -> list[str]:
    """Names from the source, a label, a "by" or a line of names near the top."""
    facts = [text_fact(request.metadata, name) for name in ("author", "authors")]
    facts += map(labels.get, ("author", "authors", "written by", "by"))
    if stated := next(filter(None, facts), None):
        return _names(stated)
    head = parsed.lines[:_BYLINE_LINES]
    for line in head:
        if match := _BY.search(line.text):
            return _names(match["names"])
    for line in head[1:5]:
        if _PEOPLE.fullmatch(line.text) and not _NO_PERSON.search(line.text):
            return _names(line.text)
    return []


def find_date(
    request: PreparedRequest, parsed: ParsedText, labels: dict[str, str], today: date
) -> FoundValue:
    """The date of publication as YYYY, YYYY-MM or YYYY-MM-DD."""
    stated = find_stated(request, labels, "date", *_DATE_LABELS)
    if stated and (exact := next(_dates(stated.value), None)):
        return FoundValue(exact, 1.0)
    head = "\n".join(line.text[:_BYLINE_CHARS] for line in parsed.lines[:_BYLINE_LINES])
    if exact := next(_dates(head), None):
        return FoundValue(exact, 0.8)
    years = [year for year in _YEAR.findall(head) if int(year) <= today.year]
    return FoundValue(years[0], 0.5) if years else FoundValue(None, 0.2)


def _names(text: str) -> list[str]:
    pieces = (piece.strip(" .*†0123456789") for piece in _NAME_BREAK.split(text))
    return [" ".join(piece.split()) for piece in pieces if len(piece) > 2]


def _dates(text: str) -> Iterator[str]:
    for match in _DATE.finditer(text):
        if match["iso"]:
            yield match["iso"]
            continue
        month = match["month"] or match["month2"] or match["month3"]
        year = match["year"] or match["year2"] or match["year3"]
        day = match["day"] or match["day2"]
        number = month_number(month)
        in_month = day is not None and 1 <= int(day) <= 31
        yield f"{year}-{number:02}" + (f"-{int(day):02}" if in_month else "")


def find_topics(text: str, title: str, labels: dict[str, str]) -> tuple[list[str], float]:
    """Stated keywords, else terms that recur; with how well they are supported."""
    stated = labels.get("keywords") or labels.get("topics") or labels.get("tags")
    if stated:
        return [item.strip(" .") for item in re.split(r"[,;·|]", stated) if item.strip(" .")], 1.0
    words = _WORD.findall(text.lower())
    in_title = frozenset(word.lower() for word in _WORD.findall(title))
    topics = _choose(_scores(words, in_title))
    return topics, min(0.8, len(topics) / _MAX_TOPICS)


def _scores(words: list[str], in_title: frozenset[str]) -> dict[str, float]:
    """Recurring words and pairs; a pair outweighs its words, the title counts double."""
    stop_words = read_words("stop_words")
    terms = {w for w in set(words) if len(w) > 3 and w not in stop_words and not w.endswith("ly")}
    singles = Counter(word for word in words if word in terms)
    pairs = Counter(pair for pair in pairwise(words) if terms.issuperset(pair))
    scores = {word: float(count) for word, count in singles.items()}
    scores.update((" ".join(pair), 1.8 * count) for pair, count in pairs.items())
    scores = {term: score for term, score in scores.items() if score >= 2}
    for term in scores:
        parts = term.split()
        scores[term] *= 1 + sum(part in in_title for part in parts) / len(parts)
    return scores


def _choose(scores: dict[str, float]) -> list[str]:
    """The best terms, without those whose words a better one has."""
    chosen: list[str] = []
    for term in sorted(scores, key=lambda term: (-scores[term], term)):
        stems = {word.rstrip("s") for word in term.split()}
        used = {word.rstrip("s") for other in chosen for word in other.split()}
        if not stems & used:
            chosen.append(term)
        if len(chosen) == _MAX_TOPICS:
            break
    return chosen


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


def answer_document(request: PreparedRequest, parsed: ParsedText, today: date) -> RulesAnswer:
    """What any text says about itself."""
    labels = read_labels(parsed)
    title = _find_title(request, parsed, labels)
    authors = find_authors(request, parsed, labels)
    published = find_date(request, parsed, labels, today)
    summary, summarised = _summarise(parsed, title.value)
    topics, topic_support = find_topics(parsed.text, title.value or "", labels)
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
        "topics": (0.20, topic_support),
    }
    return make_answer(request, parsed.text, fields, supports)


def _find_title(request: PreparedRequest, parsed: ParsedText, labels: dict[str, str]) -> FoundValue:
    stated = text_fact(request.metadata, "title") or labels.get("title")
    if stated or request.title:
        return FoundValue(stated or request.title, 1.0)
    for position, line in enumerate(parsed.lines[:5]):
        words = len(line.text.split())
        if 1 < words <= _TITLE_WORDS and not line.bullet and _reads_as_title(line.text):
            first = position == 0 or line.text.startswith("#")
            return FoundValue(line.text.strip("#*_ ="), 0.85 if first else 0.5)
    return FoundValue(None, 0.0)


def _reads_as_title(text: str) -> bool:
    letters = sum(char.isalpha() or char.isspace() for char in text)
    return (
        letters / len(text) > 0.75
        and not text.endswith((".", ",", ";"))
        and ". " not in text
        and _INSTITUTION.match(text) is None
    )


def _summarise(parsed: ParsedText, title: str | None) -> tuple[str | None, float]:
    announced = " ".join(line.text for line in parsed.within(Section.SUMMARY))
    if len(announced) >= _MIN_PROSE_CHARS:
        return _first_sentences(announced), 1.0
    lines = (line.text for line in parsed.lines if not line.bullet and not line.heading)
    long = (text for text in lines if len(text) >= _MIN_PROSE_CHARS and text != title)
    prose = " ".join(islice((text for text in long if not _BOILERPLATE.search(text)), 4))
    return (_first_sentences(prose), 0.75) if prose else (None, 0.0)


def _first_sentences(text: str) -> str:
    sentences = _SENTENCES.split(re.sub(r"\A(?:abstract|summary)[:.]?\s*", "", text, flags=re.I))
    return cut_text(" ".join(sentences[:_SUMMARY_SENTENCES]), _SUMMARY_CHARS)
