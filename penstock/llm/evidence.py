"""Looks up extracted values in the text that they were extracted from.

Rules' and models' values alike are looked for as they are, then without regard to case, accents and
punctuation, then nearly. What a value must have depends on its field: see `Origin`.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from rapidfuzz import fuzz

from penstock.documents import PAGE_STARTS, Evidence, FieldEvidence, Match
from penstock.llm.calibration import calibrate
from penstock.llm.profiles import Origin, Profile, field_origins
from penstock.llm.prompts import PreparedRequest

QUOTE_CHARS = 200
# A value of which the text says nothing is right so much less often.
UNSUPPORTED_FACTOR = 0.5
# How alike two spellings have to be, of 100; shorter values have to be the same.
_ALIKE = 88.0
_SHORTEST_ALIKE = 6
# Longer values are paragraphs: looked up by their lines, most of which have to be there.
_PARAGRAPH_CHARS = 160
_LINES_THERE = 0.6
# Words of a value may stand so many words further apart than in the value.
_WORDS_BETWEEN = 3
_MOST_WORDS = 8
_MOST_TRIES = 50
_MAX_SUM = 1e15
# From Hiragana on, words are not set apart.
_WITHOUT_BLANKS = "\u3040"
_WORD = re.compile(r"[^\W_]+(?:[+#]+|(?<=\w)[.'’](?=[^\W_]))?")
_NUMBER = re.compile(
    r"(?<![\w.,])\d{1,3}(?:[.,'’\u00a0\u202f ]\d{3})+(?:[.,]\d{1,2})?(?!\d)|\d+(?:[.,]\d+)?"
)
_GROUPING = re.compile(r"[.,'’\u00a0\u202f ](?=\d{3}(?:\D|\Z))")
_ACCENTS = re.compile("[\u0300-\u036f]+")
_SENTENCE = re.compile(r"\n+|(?<=[.!?;])\s+")

Spellings = Callable[[str], Sequence[str]]
"""Other words by which a text may name the same thing."""


def no_spellings(value: str) -> Sequence[str]:
    del value
    return ()


@dataclass(frozen=True)
class SearchedText:
    """A text in which values are looked up. Each form of it is made once, when it is needed."""

    text: str
    start: int = 0
    """Where it begins in the stored text."""
    page_starts: Sequence[int] = ()
    """Where in the stored text each page begins."""
    said: Sequence[str] = ()
    """What its source says of it: its title, its metadata."""

    @cached_property
    def lowered(self) -> str:
        """In lower case, with each character at its place."""
        lowered = self.text.lower()
        return lowered if len(lowered) == len(self.text) else self.text

    @cached_property
    def words(self) -> tuple[list[str], list[tuple[int, int]]]:
        """Its words without case and accents, and the place of each."""
        found = [*_WORD.finditer(self.text)]
        plain = _plain(" ".join([one[0] for one in found])).split(" ") if found else []
        return plain, [one.span() for one in found]

    @cached_property
    def plain(self) -> tuple[str, list[int]]:
        """The words with a blank between them, and where each begins in that."""
        words, _ = self.words
        return " ".join(words), [0, *accumulate(len(word) + 1 for word in words)]

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """The numbers of the words that are the same."""
        places: dict[str, list[int]] = {}
        for number, word in enumerate(self.words[0]):
            places.setdefault(word, []).append(number)
        return places

    @cached_property
    def numbers(self) -> dict[float, tuple[int, int]]:
        """The first place of each number, however it is written."""
        found: dict[float, tuple[int, int]] = {}
        for match in _NUMBER.finditer(self.text):
            for value in _readings(match[0], self.text[match.end() : match.end() + 2]):
                found.setdefault(value, match.span())
        return found

    @cached_property
    def said_numbers(self) -> frozenset[float]:
        found = (match[0] for one in self.said for match in _NUMBER.finditer(one))
        return frozenset(value for digits in found for value in _readings(digits, ""))

    @cached_property
    def said_plain(self) -> tuple[str, ...]:
        return tuple(f" {' '.join(_plain_words(one))} " for one in self.said)

    def evidence(self, match: Match, start: int, end: int) -> Evidence:
        """That a value stands here."""
        quote = self.text[start:end]
        if len(quote) > QUOTE_CHARS:
            quote = f"{quote[: QUOTE_CHARS - 1].rstrip()}…"
        place = self.start + start
        page = bisect_right(self.page_starts, place) if self.page_starts else None
        return Evidence(match, place, self.start + end, page or None, quote)


def find_evidence(
    value: Any,
    searched: SearchedText,
    origin: Origin = Origin.STATED,
    spellings: Spellings = no_spellings,
) -> Evidence | None:
    """What supports one value; None when nothing does.

    A stated value has to be found. A derived one may be found; otherwise it is supported without a
    place, since the text need not name it.
    """
    found = _find(value, searched, spellings)
    if found is None and origin is Origin.DERIVED:
        return Evidence(Match.DERIVED)
    return found


def find_field_evidence(
    profile: Profile,
    fields: Mapping[str, Any],
    searched: SearchedText,
    spellings: Spellings = no_spellings,
) -> dict[str, tuple[Evidence | None, ...]]:
    """What supports each field that has a value: for a list, what supports each of its items."""
    origins = field_origins(profile)
    found: dict[str, tuple[Evidence | None, ...]] = {}
    for name, value in fields.items():
        values = value if isinstance(value, list) else [value]
        if value is not None and values:
            origin = origins.get(name, Origin.STATED)
            found[name] = tuple(find_evidence(one, searched, origin, spellings) for one in values)
    return found


@dataclass(frozen=True, slots=True)
class WeighedAnswer:
    """What supports the fields of an answer, and the confidence in all of them together."""

    evidence: dict[str, FieldEvidence]
    confidence: float

    @property
    def unsupported(self) -> tuple[str, ...]:
        return tuple(name for name, one in self.evidence.items() if one.unsupported)


def weigh_answer(
    prepared: PreparedRequest,
    fields: Mapping[str, Any],
    extractor: str,
    raw: float,
    raw_of: Mapping[str, float] | None = None,
    spellings: Spellings = no_spellings,
) -> WeighedAnswer:
    """Look up the fields, and calibrate the confidence of each.

    Args:
        prepared: What was extracted from.
        fields: The cleaned fields.
        extractor: `rules`, or the name of a model: each has its own curves.
        raw: How sure the extractor is of all fields.
        raw_of: How sure it is of single fields, if it says so.
        spellings: Other words by which a text may name the same thing.
    """
    places = find_field_evidence(prepared.profile, fields, read_searched(prepared), spellings)
    own = raw_of or {}
    evidence = {
        name: _weigh(calibrate(extractor, prepared.profile.name, name, own.get(name, raw)), found)
        for name, found in places.items()
    }
    return WeighedAnswer(evidence, record_confidence(prepared.profile, evidence, raw))


def read_searched(prepared: PreparedRequest) -> SearchedText:
    """The text of a request, with what its source says of it."""
    metadata = prepared.metadata
    said = [_said(value) for name, value in metadata.items() if name != PAGE_STARTS]
    page_starts = metadata.get(PAGE_STARTS) or ()
    return SearchedText(
        prepared.text, prepared.start, page_starts, tuple(filter(None, [prepared.title, *said]))
    )


def record_confidence(profile: Profile, evidence: Mapping[str, FieldEvidence], raw: float) -> float:
    """The mean of the fields' confidences; a required field counts twice."""
    confidences = {one.confidence for one in evidence.values()}
    if len(confidences) < 2:
        return next(iter(confidences), raw)
    weights = {name: 2.0 if name in profile.required else 1.0 for name in evidence}
    total = sum(weights[name] * one.confidence for name, one in evidence.items())
    return round(total / sum(weights.values()), 3)


def _weigh(confidence: float, places: tuple[Evidence | None, ...]) -> FieldEvidence:
    there = sum(one is not None for one in places) / len(places)
    if there < 1:
        confidence *= UNSUPPORTED_FACTOR + (1 - UNSUPPORTED_FACTOR) * there
    return FieldEvidence(round(confidence, 4), places)


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        value = list(value.values())
    return "\n".join(map(_said, value)) if isinstance(value, list | tuple) else str(value)


def _find(value: Any, searched: SearchedText, spellings: Spellings) -> Evidence | None:
    if isinstance(value, Mapping):
        found = (_find(one, searched, spellings) for one in value.values())
        return next(filter(None, found), None)
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return _find_number(float(value), searched)
    return _find_text(str(value).strip(), searched, spellings)


def _find_number(value: float, searched: SearchedText) -> Evidence | None:
    if (place := searched.numbers.get(value)) is not None:
        return searched.evidence(Match.NORMALISED, *place)
    return Evidence(Match.SOURCE, quote=f"{value:g}") if value in searched.said_numbers else None


def _find_text(value: str, searched: SearchedText, spellings: Spellings) -> Evidence | None:
    if not value:
        return None
    if (start := _find_word(searched.text, value)) is not None:
        return searched.evidence(Match.EXACT, start, start + len(value))
    if (start := _find_word(searched.lowered, value.lower())) is not None:
        return searched.evidence(Match.NORMALISED, start, start + len(value))
    words = _plain_words(value)
    if not words:
        return None
    return (
        _find_plain(words, searched)
        or _find_said(words, searched)
        or _find_spelling(spellings(value), searched)
        or (_find_paragraph(value, searched) if len(value) > _PARAGRAPH_CHARS else None)
        or _find_scattered(words, searched)
        or _find_alike(words, searched)
    )


def _find_word(text: str, value: str) -> int | None:
    """Where the value begins, not as a part of a longer word."""
    start = text.find(value)
    for _ in range(_MOST_TRIES):
        if start < 0:
            return None
        end = start + len(value)
        before, after = text[max(start - 1, 0) : start], text[end : end + 1]
        if not (_joins(before, value[0]) or _joins(value[-1], after)):
            return start
        start = text.find(value, start + 1)
    return None


def _joins(left: str, right: str) -> bool:
    """Whether these two characters are parts of one word; not in scripts without blanks."""
    return left.isalnum() and right.isalnum() and max(left, right) < _WITHOUT_BLANKS


def _find_plain(words: Sequence[str], searched: SearchedText) -> Evidence | None:
    """The same words, one after the other."""
    for first in searched.places.get(words[0], ())[:_MOST_TRIES]:
        last = first + len(words) - 1
        if searched.words[0][first : last + 1] == words:
            return _between(searched, Match.NORMALISED, first, last)
    return None


def _find_said(words: Sequence[str], searched: SearchedText) -> Evidence | None:
    wanted = f" {' '.join(words)} "
    for said, plain in zip(searched.said, searched.said_plain, strict=True):
        if wanted in plain:
            return Evidence(Match.SOURCE, quote=said[:QUOTE_CHARS])
    return None


def _find_spelling(others: Sequence[str], searched: SearchedText) -> Evidence | None:
    for other in others:
        if (start := _find_word(searched.lowered, other.lower())) is not None:
            return searched.evidence(Match.NORMALISED, start, start + len(other))
    return None


def _find_scattered(words: Sequence[str], searched: SearchedText) -> Evidence | None:
    """All the words near each other, in any order: names turned round, a word left out."""
    if not 2 <= len(words) <= _MOST_WORDS or not all(one in searched.places for one in words):
        return None
    rarest = min(words, key=lambda word: len(searched.places[word]))
    reach = len(words) + _WORDS_BETWEEN
    for number in searched.places[rarest][:_MOST_TRIES]:
        low = max(0, number - reach)
        near = searched.words[0][low : number + reach]
        if all(word in near for word in words):
            at = [low + near.index(word) for word in words]
            if max(at) - min(at) < reach:
                return _between(searched, Match.FUZZY, min(at), max(at))
    return None


def _find_alike(words: Sequence[str], searched: SearchedText) -> Evidence | None:
    """Nearly the same letters; but each number has to be the same."""
    value = " ".join(words)
    if not _SHORTEST_ALIKE <= len(value) <= _PARAGRAPH_CHARS:
        return None
    plain, starts = searched.plain
    found = fuzz.partial_ratio_alignment(value, plain, score_cutoff=_ALIKE)
    if found is None:
        return None
    first = bisect_right(starts, found.dest_start) - 1
    last = min(bisect_right(starts, max(found.dest_end - 1, found.dest_start)), len(starts) - 1) - 1
    there = searched.words[0][first : last + 1]
    if any(word.isdigit() and word not in there for word in words):
        return None
    return _between(searched, Match.FUZZY, first, last)


def _find_paragraph(value: str, searched: SearchedText) -> Evidence | None:
    """Most of its lines or sentences; the place is from the first to the last of them."""
    length = 0
    found: list[tuple[int, int, int]] = []
    for line in _SENTENCE.split(value):
        words = _plain_words(line)
        length += len(words)
        if words and (place := _find_line(words, searched)) is not None:
            found.append((len(words), *place))
    if not length or sum(one[0] for one in found) < _LINES_THERE * length:
        return None
    return _between(
        searched, Match.FUZZY, min(one[1] for one in found), max(one[2] for one in found)
    )


def _find_line(words: Sequence[str], searched: SearchedText) -> tuple[int, int] | None:
    own, places = searched.words[0], searched.places
    for first in places.get(words[0], ())[:_MOST_TRIES]:
        if own[first : first + len(words)] == words:
            return first, first + len(words) - 1
    return None


def _between(searched: SearchedText, match: Match, first: int, last: int) -> Evidence:
    spans = searched.words[1]
    return searched.evidence(match, spans[first][0], spans[last][1])


def _plain_words(text: str) -> list[str]:
    return [_plain(word) for word in _WORD.findall(text)]


def _plain(text: str) -> str:
    """Without case and accents."""
    if text.isascii():
        return text.lower()
    return _ACCENTS.sub("", unicodedata.normalize("NFD", text.casefold()))


def _readings(digits: str, following: str) -> Iterator[float]:
    """A number as it may be meant: 60,000 and 60.000; 1.5 and 1,5; 60k."""
    grouped = _GROUPING.sub("", digits).replace(",", ".")
    plain = digits.replace(",", ".")
    for written in dict.fromkeys((grouped, plain)):
        if written.count(".") <= 1 and " " not in written and len(written) < 18:
            number = float(re.sub(r"['’\u00a0\u202f]", "", written))
            if number < _MAX_SUM:
                yield number
                if following[:1] in ("k", "K") and not following[1:2].isalpha():
                    yield number * 1000
