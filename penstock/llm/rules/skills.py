"""Skills in a text, the best supported first."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from penstock.llm.rules.layout import Line, Part, Reading
from penstock.llm.rules.phrases import Hit, PhraseTable, lower_in_place
from penstock.llm.rules.vocabulary import read_table

_LISTED_WEIGHT = 3.0
_MENTIONS_COUNTED = 4
_NEAR_CHARS = 24
_LISTING_BEFORE = re.compile(
    r"(?:[,;:|/•·▪(&+]|\.\s|(?:^|\n)[ \t]*[-*–]?|\b(?:and|or|in|with|using|via|of|like))\s*\Z"
)
_LISTING_AFTER = re.compile(
    r"\s*(?:[,;|/•·▪)+\n]|\.(?:\s|\Z)|\Z|\s(?:&|and|or|for|on|developers?|programming|code|apps?"
    r"|applications?|services?|microservices|components|skills|models?|scripts|formulas)\b)"
)
_INITIAL = re.compile(r"\.\s?[A-Z]")
_ITEM_BREAK = re.compile(r"\s*[,;|•·▪●/\t]\s*|\s{3,}|\s+[–—-]\s+")
_LABEL = re.compile(r"\A[^,;|:]{2,40}:\s+")
_ASIDE = re.compile(r"\s*\([^)]*\)?|\s*\d+\+?\s*(?:years?|yrs?).*", re.IGNORECASE)
_PLAIN_ITEM = re.compile(r"[^\W\d_][\w&+#.'’-]*(?: [\w&+#.'’-]+){0,3}")
_LEVEL = re.compile(
    r"(?:strong|advanced|basic|excellent|good|proficient in|proficient|expert in|expert|fluent"
    r"|experienced with|familiar with|familiarity with|knowledge of|intermediate|native)\s+",
    re.IGNORECASE,
)
_SENTENCE_WORD = re.compile(
    r"\b(?:and|the|with|for|to|from|have|has|my|is|are|years?|etc|other|more)\b", re.IGNORECASE
)


@dataclass(slots=True)
class _Mentions:
    first: int
    count: int = 0
    listed: bool = False

    def score(self, length: int) -> float:
        weight = _LISTED_WEIGHT if self.listed else 0.0
        return weight + min(self.count, _MENTIONS_COUNTED) + 0.5 * (1 - self.first / length)


@dataclass(frozen=True, slots=True)
class SkillSet:
    """Skills by rank, and how many of them a list of skills names."""

    names: tuple[str, ...]
    listed: int = 0
    known: int = 0


def find_skills(reading: Reading, *list_parts: Part) -> SkillSet:
    """The skills a text names; those under a heading for skills, or the given parts, weigh more."""
    spans = reading.spans(Part.SKILLS, *list_parts)
    mentions: dict[str, _Mentions] = {}
    for hit, listed in _known_skills(reading, spans):
        found = mentions.setdefault(hit.name, _Mentions(hit.start))
        found.count += 1
        found.listed = found.listed or listed
    known = len(mentions)
    for name, start in _unknown_items(reading):
        mentions.setdefault(name, _Mentions(start, listed=True))
    length = max(1, len(reading.text))
    ranked = sorted(
        mentions, key=lambda name: (-mentions[name].score(length), mentions[name].first)
    )
    return SkillSet(tuple(ranked), sum(found.listed for found in mentions.values()), known)


def _known_skills(reading: Reading, spans: list[tuple[int, int]]) -> Iterator[tuple[Hit, bool]]:
    """Mentions of skills from the table and whether a list holds them."""
    table = _skill_table()
    lists = reading.spans(Part.SKILLS)
    for hit in table.phrases.find(reading.lowered):
        listed = _inside(hit.start, spans)
        spelling = table.everyday.get(reading.lowered[hit.start : hit.end])
        if spelling is not None:
            as_spelled = reading.text[hit.start : hit.end] == spelling
            if as_spelled and (_inside(hit.start, lists) or _is_listed(reading.text, hit)):
                yield hit, listed
        elif listed or hit.name not in table.common:
            yield hit, listed


def _unknown_items(reading: Reading) -> Iterator[tuple[str, int]]:
    """Short items of a list of skills that the table does not know."""
    for line in reading.within(Part.SKILLS):
        if len(line.text) <= 400:
            yield from _items_of(line)


def _items_of(line: Line) -> Iterator[tuple[str, int]]:
    phrases = _skill_table().phrases
    body = _LABEL.sub("", line.text)
    items = _ITEM_BREAK.split(body)
    # One long phrase is a sentence about a skill; a list has several items or a bullet.
    if len(items) == 1 and not line.bullet and len(body.split()) > 3:
        return
    for raw in items:
        item = _LEVEL.sub("", _ASIDE.sub("", raw)).strip(" .:-–*")
        if _is_plain_item(item) and not phrases.mentions_any(lower_in_place(item)):
            yield item, line.start


def _is_plain_item(item: str) -> bool:
    return (
        len(item) > 2
        and _PLAIN_ITEM.fullmatch(item) is not None
        and _SENTENCE_WORD.search(item) is None
    )


def _inside(position: int, spans: list[tuple[int, int]]) -> bool:
    return any(start <= position < end for start, end in spans)


def _is_listed(text: str, hit: Hit) -> bool:
    before = text[max(0, hit.start - _NEAR_CHARS) : hit.start]
    after = text[hit.end : hit.end + _NEAR_CHARS]
    if len(hit.name) == 1 and _INITIAL.match(after):
        return False
    return bool(_LISTING_BEFORE.search(before)) and bool(_LISTING_AFTER.match(after))


@dataclass(frozen=True, slots=True)
class _SkillTable:
    phrases: PhraseTable
    everyday: Mapping[str, str]
    """Everyday words in lower case, and the spelling that means a skill."""
    common: frozenset[str]
    """Names that count only under a heading for skills or requirements."""


@cache
def _skill_table() -> _SkillTable:
    names: dict[str, str] = {}
    everyday: dict[str, str] = {}
    common: set[str] = set()
    for first, others in read_table("skills").items():
        name = first.lstrip("!~")
        if first.startswith("~"):
            common.add(name)
        for spelling in (first.removeprefix("~"), *others):
            plain = spelling.removeprefix("!")
            names.setdefault(plain.lower(), name)
            if spelling != plain:
                everyday[plain.lower()] = plain
    return _SkillTable(PhraseTable(names), everyday, frozenset(common))
