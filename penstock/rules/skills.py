"""Skills, certifications, industries and job titles in a text."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise

from penstock.rules.layout import ParsedText, Section, TextLine
from penstock.rules.vocabulary import (
    PhraseHit,
    PhraseTable,
    lower_in_place,
    read_phrases,
    read_table,
    read_words,
)

_LISTED_WEIGHT = 3.0
_MENTIONS_COUNTED = 4
_FEW_ITEMS = 12
_NEAR_CHARS = 24
_LISTING_BEFORE = re.compile(
    r"(?:[,;:|/•·▪(&+]|\.\s|(?:^|\n)[ \t]*[-*–]?|\b(?:and|or|in|with|using|via|of|like))\s*\Z"
)
_LISTING_AFTER = re.compile(
    r"\s*(?:[,;|/•·▪)+\n]|\.(?:\s|\Z)|\Z|\s(?:&|and|or|for|on|developers?|programming|code|apps?"
    r"|applications?|services?|microservices|components|skills|models?|scripts|formulas)\b)"
)
_INITIAL = re.compile(r"\.\s?[A-Z]")
_URL = re.compile(r"(?:https?:|www\.)\S+|\S+@\S+|\b[\w.-]+\.(?:com|org|net|in|io)/\S*")
_ASIDE = re.compile(
    r"\s*\((?:(?:less|more|over|under)\b|\d|native|fluent|basic|advanced|expert|intermediate"
    r"|beginner|proficient|good|(?:sehr )?gut|grundk|nivel|level|programming lang)[^()]*(?:\)|\Z)"
    r"|\s*[:–-]?\s*\b\d+\+?\s*(?:years?|yrs?)\b.*",
    re.IGNORECASE,
)
_ITEM_BREAK = re.compile(r"\s*[][,;|•·▪●\t()…]+\s*|\s{3,}|\s+[–—/-]+\s+|\.\s+(?=[A-Z])|:\s+")
_LABEL = re.compile(r"\A[^,;|:()]{2,40}(?::\s+|\s+:\s*|\s+[–-]\s+(?=[^,]+,))")
_PLAIN_ITEM = re.compile(
    r"(?=.*[^\W\d_])[\w.#](?:[\w&+#.'’/@*-]*\w?[+#*]{0,2})(?: [\w&+#.'’/-]+){0,4}"
)
_SKILL_LEVEL = re.compile(
    r"\A(?:and|or|strong|basics? of|basic|excellent|(?:good |working )?knowledge (?:of|in|on)"
    r"|proficient (?:in|with)|proficiency in|expert in|expertise in|fluent in|fluent"
    r"|experienced? (?:in|with)|familiar(?:ity)? with|exposure to|well versed with)\s+",
    re.IGNORECASE,
)
_SENTENCE_WORD = re.compile(
    r"\b(?:the|with|from|by|at|have|has|had|having|my|our|we|is|are|was|were|been|years?|etc|other"
    r"|more|less|than|which|who|that|this|worked|using|like|such|including|page \d+)\b"
    r"|\A(?:and|to|in|of|for|on|as)\b|\b(?:and|to|in|of|for|on|as|an?|or)\Z"
    r"|\A(?:page|present|declaration|date|place)\b",
    re.IGNORECASE,
)
_AND = re.compile(r"\s+(?:and|und|et|y|e|en)\s+")
_WORDS = re.compile(r"[^\s/&,-]+")
_WRAPPED_CHARS = 50
_NO_SKILLS = re.compile(r"(?i)(?:i )?hereby|(?:place|date|signature)\s*:")


@dataclass(slots=True)
class _Mentions:
    name: str
    first: int
    count: int = 0
    listed: bool = False

    def score(self, length: int) -> float:
        weight = _LISTED_WEIGHT if self.listed else 0.0
        return weight + min(self.count, _MENTIONS_COUNTED) + 0.5 * (1 - self.first / length)


def find_skills(parsed: ParsedText, *list_parts: Section) -> tuple[list[str], int]:
    """The skills a text names, by rank, and how many of them a list of skills names.

    Those under a heading for skills, or the given parts, weigh more. A résumé's lists are taken as
    they are written, and what only its sentences mention where they name few.
    """
    spans = parsed.spans(Section.SKILLS, *list_parts)
    mentions: dict[str, _Mentions] = {}
    for hit, listed in _known_skills(parsed, spans):
        found = mentions.setdefault(hit.name, _Mentions(hit.name, hit.start))
        found.count += 1
        found.listed = found.listed or listed
    if parsed.resume:
        mentions = _as_written(parsed, mentions)
    else:
        phrases, *_ = _skill_table()
        for item, start in _listed_items(parsed):
            if not phrases.mentions_any(lower_in_place(item)):
                mentions.setdefault(item, _Mentions(item, start, listed=True))
    length = max(1, len(parsed.text))
    ranked = sorted(mentions.values(), key=lambda found: (-found.score(length), found.first))
    return [found.name for found in ranked], sum(found.listed for found in ranked)


def _as_written(parsed: ParsedText, mentions: dict[str, _Mentions]) -> dict[str, _Mentions]:
    """The items of the lists, twins merged, then mentioned skills if those are few."""
    items: dict[str, _Mentions] = {}
    for item, start in _listed_items(parsed):
        name = _skill_name(item)
        count = mentions[name].count if name in mentions else 1
        kept = items.setdefault(name.casefold(), _Mentions(item, start, count, listed=True))
        if item.casefold() == name.casefold():
            kept.name = item
    if len(items) < _FEW_ITEMS:
        words = {word for item in items for word in _WORDS.findall(item)}
        for name, found in mentions.items():
            key = name.casefold()
            if key not in items and not words.issuperset(_WORDS.findall(key)):
                found.listed = False
                items[key] = found
    return items


def _skill_name(item: str) -> str:
    """The name that an item's spellings share: the table's, else its own letters."""
    phrases, *_ = _skill_table()
    lowered = " ".join(lower_in_place(item).strip(".").split())
    return phrases.name_of("." + lowered) or phrases.name_of(lowered) or lowered


def _known_skills(
    parsed: ParsedText, spans: list[tuple[int, int]]
) -> Iterator[tuple[PhraseHit, bool]]:
    """Mentions of skills from the table and whether a list holds them."""
    phrases, everyday, common = _skill_table()
    lists = parsed.spans(Section.SKILLS)
    for hit in phrases.find(parsed.lowered):
        listed = _inside(hit.start, spans)
        spelling = everyday.get(parsed.lowered[hit.start : hit.end])
        if spelling is not None:
            as_spelled = parsed.text[hit.start : hit.end] == spelling
            if as_spelled and (_inside(hit.start, lists) or _is_listed(parsed.text, hit)):
                yield hit, listed
        elif listed or hit.name not in common:
            yield hit, listed


def _listed_items(parsed: ParsedText) -> Iterator[tuple[str, int]]:
    """The items of lists of skills, and where their lists start."""
    phrases, *_ = _skill_table()
    for text, start, bullet in _paragraphs(parsed):
        body = _LABEL.sub("", _ASIDE.sub("", _URL.sub("", text)))
        items = [item for item in _ITEM_BREAK.split(body) if item]
        items[-1:] = _last_items(items[-1]) if items else []
        # One long phrase is a sentence about a skill; a list has several items or a bullet.
        if len(items) == 1 and not bullet and len(body.split()) > 4:
            continue
        for raw in items:
            item = _SKILL_LEVEL.sub("", raw).strip(" :-–*").rstrip(".").replace("\n", " ")
            plain = _PLAIN_ITEM.fullmatch(item) and not _SENTENCE_WORD.search(item)
            if plain and (len(item) > 2 or phrases.name_of(lower_in_place(item))):
                yield item, start


def _last_items(item: str) -> list[str]:
    """The two skills of "Outlook and PowerPoint", if a table knows one."""
    phrases, *_ = _skill_table()
    halves = _AND.split(item, maxsplit=1)
    return halves if any(map(phrases.name_of, map(lower_in_place, halves))) else [item]


def _labels_skills(line: TextLine) -> bool:
    """Whether a line such as "Databases: Oracle, MySQL" stands outside of jobs."""
    if line.part is Section.EXPERIENCE or ":" not in line.text or not _LABEL.match(line.text):
        return False
    phrases, *_ = _skill_table()
    items = [item for item in _ITEM_BREAK.split(lower_in_place(line.text))[1:] if item]
    return len(items) <= 2 * sum(map(phrases.mentions_any, items))


def _paragraphs(parsed: ParsedText) -> Iterator[tuple[str, int, bool]]:
    """The lines of the lists of skills, those joined that a line break took apart."""
    found: list[tuple[str, int, bool]] = []
    last, tight, skipped, running = "", False, False, False
    for before, line in pairwise((TextLine("", 0, Section.HEAD), *parsed.lines)):
        if line.heading or not (line.part is Section.SKILLS or _labels_skills(line)):
            last, skipped, running = "", False, False
            continue
        tight = tight if last else before.heading and not line.gap
        # A list that began right under its heading ends where other words stand apart.
        apart = (
            tight and line.gap and last != "" and not (line.bullet or _ITEM_BREAK.search(line.text))
        )
        skipped = skipped or apart or _NO_SKILLS.match(line.text) is not None
        if skipped:
            continue
        wrapped = running or (len(last) > _WRAPPED_CHARS and "," in last)
        open_end = last.endswith((",", ";", "&", "/")) or last.count("(") > last.count(")")
        running = open_end or (wrapped and not line.gap)
        running = running and last != "" and not line.bullet and not _LABEL.match(line.text)
        if running:
            text, start, bullet = found.pop()
            found.append((f"{text} {line.text}", start, bullet))
        else:
            found.append((line.text, line.start, line.bullet))
        last = line.text
    return iter(found)


def _inside(position: int, spans: list[tuple[int, int]]) -> bool:
    return any(start <= position < end for start, end in spans)


def _is_listed(text: str, hit: PhraseHit) -> bool:
    before = text[max(0, hit.start - _NEAR_CHARS) : hit.start]
    after = text[hit.end : hit.end + _NEAR_CHARS]
    if len(hit.name) == 1 and _INITIAL.match(after):
        return False
    return bool(_LISTING_BEFORE.search(before)) and bool(_LISTING_AFTER.match(after))


@cache
def _skill_table() -> tuple[PhraseTable, dict[str, str], set[str]]:
    """All skills; everyday words in lower case, with the spelling that means a skill; and names
    that count only under a heading for skills or requirements."""
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
    return PhraseTable(names), everyday, common


# Cheap to search, and in every line with a certification.
_HINT = re.compile(r"[A-Z]{3}|Certified|[a-zA]\+|Professional|Belt|SAFe|Series|License|PRINCE|Serv")
_TAIL = re.compile(
    r"\s*(?:[|•·;]|[(,–—-]?\s*(?:[^\W\d_]{3,9}\.? |\d\d?[./])*(?<!\d)(?:19|20)\d\d\b).*"
)
_MAX_ITEM_WORDS = 8


def find_certifications(parsed: ParsedText) -> list[str]:
    """Certifications in the order of the text, each once."""
    found: list[str] = []
    items = set(parsed.first_block(Section.CERTIFICATIONS))
    for line in parsed.lines:
        for name in _certifications_of(line, is_item=line in items):
            if not any(_covers(other, name) for other in found):
                found = [other for other in found if not _covers(name, other)]
                found.append(name)
    return found


@cache
def _certification() -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?=[A-Z])(?:{'|'.join(read_table('certifications'))})(?![\w-])")


def _certifications_of(line: TextLine, *, is_item: bool) -> Iterator[str]:
    # "CMA" in a school's name or "CIA" in a hobby is no certification.
    if line.part is Section.OTHER or line.heading:
        return
    hinted = _HINT.search(line.text) is not None
    matches = [m[0].strip(" .,-") for m in _certification().finditer(line.text)] if hinted else []
    # Under its heading a line is one certification in all its words but the date, or a list.
    item = _TAIL.sub("", line.text).strip(" .:-–,") if is_item else ""
    items = item.split(", ") if item.count(", ") > 1 else [item]
    named = [one for one in items if len(one) > 2 and one.lower() not in _month_names()]
    whole = len(items) > 1 or len(matches) < 2
    short = all(len(one.split()) <= _MAX_ITEM_WORDS for one in items)
    yield from named if named and whole and short else matches


@cache
def _month_names() -> frozenset[str]:
    return frozenset(name for names in read_table("months").values() for name in names)


def _covers(longer: str, shorter: str) -> bool:
    names = (shorter, *read_table("certifications").get(shorter, ()))
    return any(name.casefold() in longer.casefold() for name in names)


_MIN_SCORE = 2.0
_SHARE_OF_BEST = 0.34


def find_industries(parsed: ParsedText) -> list[str]:
    """Industries with enough different words, strongest first."""
    signs: dict[str, Counter[str]] = defaultdict(Counter)
    for hit in read_phrases("industries").find(parsed.lowered):
        signs[hit.name][parsed.lowered[hit.start : hit.end]] += 1
    # A second word counts more than the same word again.
    scores = {
        name: len(words) + 0.5 * sum(min(count - 1, 2) for count in words.values())
        for name, words in signs.items()
    }
    best = max(scores.values(), default=0.0)
    kept = [name for name, s in scores.items() if s >= max(_MIN_SCORE, best * _SHARE_OF_BEST)]
    return sorted(kept, key=lambda name: -scores[name])


_WORD = re.compile(r"[\w.(&/-][\w&/.+#'’()-]*\Z")
_NAME_BREAK = re.compile(r"[/-]")
_TITLE_LINKS = frozenset(
    (
        "of",
        "for",
        "to",
        "in",
        "de",
        "du",
        "des",
        "da",
        "do",
        "en",
        "für",
        "im",
        "van",
        "del",
        "et",
        "&",
    )
)
_TITLE_END = re.compile(r"[IVX]+|[1-5]|\([^)]*\)?|[^(]*\)")
_BREAKS = re.compile(
    r"\s*[|•·;\t@]\s*|\s{2,}|\s+[–—-]+\s+|\s*[–—]\s*|,\s+|\s+(?:at|with|from|bei|chez)\s+|:\s+"
    r"|(?<!Lecturer)(?<!Professor)(?<!Fellow)\s+in\s+(?!Test\b)(?=[A-Z])|(?:\A|\s)as\s+(?:an?\s+)?"
)
_NOT_A_TITLE = re.compile(
    r"(?:university|college|school|department|inc|ltd|llc|gmbh|bachelor|master of|degree|"
    r"reported|reporting|responsible|managed|worked|our|we|you|your|the|a|an|this|years?|"
    r"office of|team of|who|is|are|was)\b",
    re.IGNORECASE,
)
_PROSE_WORD = re.compile(
    r"(?<!\w)(?:our|we|you|your|years?|is|are|was|the|has|have|will|my)(?!\w)", re.IGNORECASE
)
_TITLE_ASIDE = re.compile(r"\s*\([^)]*\)?\s*\Z")
_SMALL_WORDS = {"OF", "AND", "FOR", "THE", "IN", "TO"}
_MAX_TITLE_CHARS = 70


def find_titles(line: str) -> Iterator[str]:
    """The job titles among the pieces of a line such as "Engineer, Acme | 2018"."""
    if not names_a_role(line):
        return
    yield from filter(is_title, map(tidy_title, split_titles(line)))


def split_titles(line: str) -> list[str]:
    """The pieces of such a line."""
    return [piece for piece in _BREAKS.split(line) if piece]


def is_title(text: str) -> bool:
    """Whether these few words, and nothing else, name a job."""
    words = text.split()
    return (
        0 < len(text) <= _MAX_TITLE_CHARS
        and (text[0].isupper() or text[0] == ".")
        and any(
            _names_job(word) and _follows_job(words[place + 1 :], word)
            for place, word in enumerate(words[:6])
        )
        and all(map(_WORD.match, words))
        and _NOT_A_TITLE.match(text) is None
        and _PROSE_WORD.search(text) is None
    )


def names_a_role(text: str) -> bool:
    """Whether a word for a job occurs at all."""
    return any(map(_names_job, text.split()))


def tidy_title(text: str) -> str:
    """Without what stands in brackets at its end, and not in capitals."""
    return calm_title(_TITLE_ASIDE.sub("", text) if "(" in text else text)


def calm_title(text: str) -> str:
    """Without stray punctuation, and not in capitals."""
    words = text.strip(" .,(*_").split()
    if not all(_is_capitals(word) for word in words if len(word) > 2):
        return " ".join(words)
    return " ".join(_lower(word) for word in words)


def _is_capitals(word: str) -> bool:
    """Whether all its letters are: those of "QAエンジニア" are not."""
    return word.isupper() and all(letter.isupper() for letter in word if letter.isalpha())


def _lower(word: str) -> str:
    if word in _SMALL_WORDS:
        return word.lower()
    return word.title() if len(word) > 3 else word


@lru_cache(maxsize=8192)
def _names_job(word: str) -> bool:
    whole, ends, _ = _job_words()
    parts = _NAME_BREAK.split(word.lower().strip(".,;:()"))
    return any(part in whole or part.endswith(ends) for part in parts)


def _follows_job(words: list[str], job: str) -> bool:
    """Whether these words can end a title after its word for a job."""
    if not words or words[0].lower() in _TITLE_LINKS:
        return len(words) != 1 and len(words) <= 6 and not any(map(str.isdigit, words))
    _, ends, described_jobs = _job_words()
    described = job.lower() in described_jobs or job.lower().endswith(ends)
    return (described and len(words) <= 3) or all(_TITLE_END.fullmatch(word) for word in words)


@cache
def _job_words() -> tuple[frozenset[str], tuple[str, ...], frozenset[str]]:
    """Words for jobs, ends of compounds, and the words that others describe from behind."""
    words = read_words("jobs")
    described = frozenset(word[1:] for word in words if word[0] == "+")
    ends = tuple(word[1:] for word in words if word[0] == "-")
    return frozenset(word for word in words if word[0] not in "+-") | described, ends, described
