"""Job postings in the JSON that a page carries for its own scripts."""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from penstock.text.charsets import clean_line
from penstock.text.html import PageText
from penstock.text.page_json import find_json, load_json
from penstock.text.postings.blocks import LOOKS_LIKE_HEADING, Block, Blocks, read_blocks
from penstock.text.postings.fields import (
    PageIdentity,
    Posting,
    join_fields,
    join_names,
    read_line,
    read_places,
    read_salary,
)
from penstock.text.postings.headings import Kind, heading_kind, hints_at_job
from penstock.text.postings.sections import split_blocks

_MOST_VALUES = 200_000
_MOST_NESTED = 20
_NESTED_OPENINGS = ('{"', "[{", '["', "[[")
_LEAST_BODY = 200
_PROSE_CHARS = 60
_TITLE_CHARS = 200
_SECTION_DEPTH = 6
_MOST_FIELDS = 100

_TITLE_KEYS = (
    *("title", "jobtitle", "postingtitle", "positiontitle", "requisitiontitle", "jobpostingtitle"),
    *("displaytitle", "positionname", "jobname", "postingname", "name", "text", "headline"),
)
_SECTION_TITLES = frozenset(("title", "heading", "header", "headline", "text", "name", "label"))
_SKIPPED_KEY = re.compile(
    r"^(meta|seo|og|social|short|brief)|snippet|teaser|cookie|gdpr|question|forms?$|confirm|banner"
    r"|footer|^nav|related|similar|recommend|other(job|position|posting)|translat|i18n|theme"
    r"|branding|demographic|survey|alert|share|breadcrumb|image|video|url$|keywords|^scripts?$|^css"
)
_FACTS = {
    "company": re.compile(r"^(company|hiringorganization|organi[sz]ation|employer)(name)?$"),
    "location": re.compile(
        r"^(job|primary|all|normalized|full|posting|jobpost)?(locations?|city)(name|s?text|info|list)?$"
    ),
    "employment_type": re.compile(
        r"^employmenttype|^typeofemployment|^commitment$|^(job|time|contract)type$|^(work)?schedule$"
    ),
    "salary": re.compile(r"^(base)?(salary|payrange|salaryrange|compensation)$"),
    "date_posted": re.compile(r"^(date(posted|published)|(posted|published)(at|on|date))$"),
    "valid_through": re.compile(r"^(validthrough|applicationdeadline|clos(e|ing)date)$"),
}
# People and articles have job titles and departments, too: these keys alone do not prove a job.
_SURE_KEY = re.compile(
    r"^(job|posting|requisition|req|vacancy)(id|code|number|req)$|requisition|^appl(y|ication)url"
    r"|^employmenttype|^commitment$|^jobad"
)
_JOB_FACT = re.compile(
    r"^(job|posting|position|vacancy)(title|family|type|category|url|level)|department|^teams?$"
    r"|^hiring|location|city"
)
_JOB_KEY = re.compile(
    rf"{_SURE_KEY.pattern}|{_FACTS['location'].pattern}|^(job|posting|position|vacancy)|department"
    r"|^teams?$|^hiring|^description|^content|^body"
)
_ID_KEY = re.compile(
    r"^(job|posting|position|requisition|req|external|display)?(id|slug|code|number)$"
)
_OTHER_JOB_KEY = re.compile(r"location|^(job|requisition|posting)?id$|url$|^slug$")
_WORDS_OF_KEY = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])|[^\W\d_a-zA-Z]+")


@dataclass(frozen=True, slots=True)
class _Candidate:
    posting: Posting
    located: bool
    """Its id is in the page's URL."""
    named: bool
    """Its title is in the page's title."""

    @property
    def weight(self) -> tuple[bool, int, int]:
        named = len(self.posting.title) if self.named else 0
        return self.located, named, _size(self.posting.body)


def find_state_posting(page: PageText, identity: PageIdentity) -> Posting | None:
    """The posting of the page; None when its state has none, or several and none matches."""
    language = page.tree.get("lang")
    roots = find_json(page, lambda text: identity.is_hiring or hints_at_job(text, language))
    found = [candidate for root in roots for candidate in _candidates(root, identity)]
    meant = [candidate for candidate in found if candidate.located or candidate.named]
    if not meant and len({candidate.posting.title for candidate in found}) > 1:
        return None
    best = max(meant or found, key=lambda candidate: candidate.weight, default=None)
    return best.posting if best else None


def _candidates(root: Any, identity: PageIdentity) -> Iterator[_Candidate]:
    rows = root if isinstance(root, dict) else {}
    known: set[str] = set()
    nested = _MOST_NESTED
    stack = [root]
    for _ in range(_MOST_VALUES):
        if not stack:
            return
        value = stack.pop()
        if isinstance(value, dict):
            yield from _read_object(value, identity, rows, known)
            stack.extend(value.values())
        elif isinstance(value, list):
            yield from _read_array(value, identity)
            stack.extend(value)
        elif isinstance(value, str) and value[:2] in _NESTED_OPENINGS and nested:
            nested -= 1
            stack.extend(load_json(value))


def _read_object(
    node: Mapping[str, Any], identity: PageIdentity, rows: Mapping[str, Any], known: set[str]
) -> Iterator[_Candidate]:
    """The job that the object is; when two are `known`, only one that matches the page's title."""
    known_title = _read_title(node) if _hints_at_job(tuple(node)) else ""
    title = known_title or _named_title(node, identity)
    if not title or len(title) > _TITLE_CHARS:
        return
    title = read_line(title)
    keys = {_normalise_key(key): value for key, value in node.items()}
    ids = (str(value) for key, value in keys.items() if _ID_KEY.search(key))
    located, named = any(map(identity.has_address_with, ids)), identity.names(title)
    if not located and not named and len(known) > 1:
        return
    fields = islice(_Fields(rows).read(node, Kind.UNKNOWN, _SECTION_DEPTH), _MOST_FIELDS)
    body = join_fields(list(fields))
    if _size(body) >= _LEAST_BODY and _is_job(keys, body, located or named, identity):
        known.add(title)
        yield _Candidate(Posting(title, body, **_read_facts(keys)), located, named)


@lru_cache(maxsize=1024)
def _hints_at_job(keys: tuple[str, ...]) -> bool:
    """Objects of one kind have the same keys, and a page's state has thousands of few kinds."""
    return any(
        _JOB_KEY.search(_normalise_key(key)) or _kind_of_key(key) is not Kind.UNKNOWN
        for key in keys
    )


def _is_job(keys: Mapping[str, Any], body: Blocks, meant: bool, identity: PageIdentity) -> bool:
    """Articles and events have titles and texts, too; only jobs ask for something."""
    if not meant and not identity.is_hiring:
        return False
    if any(_SURE_KEY.search(key) for key in keys) or any(b.kind is Kind.REQUIRED for b in body):
        return True
    kinds = split_blocks(body, lists=False).headed
    told = meant and not identity.is_article and (identity.has_job_address or Kind.ROLE in kinds)
    return Kind.REQUIRED in kinds and (told or any(_JOB_FACT.search(key) for key in keys))


def _read_title(node: Mapping[str, Any]) -> str:
    keyed = {_normalise_key(key): value for key, value in node.items()}
    titles = (keyed.get(key) for key in _TITLE_KEYS)
    return next((title for title in titles if isinstance(title, str) and title.strip()), "")


def _named_title(node: Mapping[str, Any], identity: PageIdentity) -> str:
    """The value that the page is called by, in an object with more than short values."""
    texts = [value for value in node.values() if isinstance(value, str)]
    # A text may stand elsewhere, under a name that begins with a dollar sign.
    long = any(len(text) > _TITLE_CHARS or text.startswith("$") for text in texts)
    if not long and not any(isinstance(value, dict | list) for value in node.values()):
        return ""
    named = (text for text in texts if 8 <= len(text) <= _TITLE_CHARS and identity.names(text))
    return next(named, "")


@lru_cache(maxsize=4096)
def _normalise_key(key: str) -> str:
    """`job_title`, `jobTitle` and `job-title` are one key."""
    return re.sub(r"[\W_]", "", key.lower())


@lru_cache(maxsize=4096)
def _kind_of_key(key: str) -> Kind:
    """Keys say what they hold in the words of headings."""
    return heading_kind(" ".join(_WORDS_OF_KEY.findall(key)))


def _size(blocks: Blocks) -> int:
    return sum(len(block.text) for block in blocks)


class _Fields:
    """The texts of an object and of those inside it, each with what its key says it is about."""

    def __init__(self, rows: Mapping[str, Any]) -> None:
        self._rows = rows

    def read(
        self, node: Mapping[str, Any], kind: Kind, depth: int
    ) -> Iterator[tuple[Kind, list[Block]]]:
        for key, value in node.items():
            if not _SKIPPED_KEY.search(_normalise_key(key)):
                own = _kind_of_key(key)
                yield from self._read_value(value, kind if own is Kind.UNKNOWN else own, depth)

    def _read_value(self, value: Any, kind: Kind, depth: int) -> Iterator[tuple[Kind, list[Block]]]:
        text = self._rows.get(value, value) if isinstance(value, str) else value
        if isinstance(text, str):
            if (len(text) >= _PROSE_CHARS and " " in text) or "<p" in text or "<li" in text:
                yield kind, read_blocks(text)
        elif _is_rich_text(value):
            yield kind, read_blocks(_to_html(value))
        elif isinstance(value, list) and depth:
            lines = [line for item in value if (line := _lone_text(item))]
            if len(lines) == len(value) and sum(map(len, lines)) >= _PROSE_CHARS:
                yield kind, list(_items(lines))
            elif not lines:
                for item in value:
                    yield from self._read_value(item, kind, depth - 1)
        elif isinstance(value, dict) and depth and not self._is_other_job(value):
            yield from self._read_section(value, kind, depth - 1)

    def _is_other_job(self, value: Mapping[str, Any]) -> bool:
        facts = any(_OTHER_JOB_KEY.search(_normalise_key(key)) for key in value)
        return facts and bool(_read_title(value))

    def _read_section(
        self, section: Mapping[str, Any], kind: Kind, depth: int
    ) -> Iterator[tuple[Kind, list[Block]]]:
        named = (key for key, value in section.items() if _is_section_title(key, value))
        heading = next(named, None)
        title = read_blocks(str(section[heading]))[:1] if heading else []
        own = heading_kind(title[0].text) if title else Kind.UNKNOWN
        rest = {key: value for key, value in section.items() if key != heading}
        for part, blocks in self.read(rest, kind if own is Kind.UNKNOWN else own, depth):
            yield part, [*(Block(block.text, LOOKS_LIKE_HEADING) for block in title), *blocks]


_NODE_KEYS = frozenset({"_type", "type", "nodetype", "tag", "style", "children", "marks"})
_NODE_HEADING = re.compile(r"head(ing|er)|\bh[1-6]\b")
_NODE_ITEM = re.compile(r"list-?_?item|bullet|\bli\b")


def _is_rich_text(value: Any) -> bool:
    """Whether it is a tree of an editor's nodes, each with its type and its text or children."""
    nodes = value if isinstance(value, list) else [value]
    keyed = (isinstance(node, dict) and _NODE_KEYS & set(map(str.lower, node)) for node in nodes)
    return bool(nodes) and all(keyed)


def _to_html(node: Any, depth: int = _SECTION_DEPTH * 2) -> str:
    """The text of an editor's nodes as HTML."""
    if isinstance(node, str):
        return html.escape(node)
    if isinstance(node, list) and depth:
        return "".join(_to_html(item, depth - 1) for item in node)
    if not isinstance(node, dict) or not depth:
        return ""
    says = {key.lower(): value for key, value in node.items()}
    kind = " ".join(
        value.lower()
        for key in ("_type", "type", "nodetype", "tag", "style", "listitem")
        if isinstance(value := says.get(key), str)
    )
    inside = (
        says.get(key) for key in ("text", "value", "content", "children", "data", "items", "root")
    )
    text = "".join(_to_html(value, depth - 1) for value in inside)
    if _NODE_HEADING.search(kind):
        return f"<h3>{text}</h3>"
    if _NODE_ITEM.search(kind):
        return f"<li>{text}</li>"
    return text if kind in ("text", "span", "") else f"<div>{text}</div>"


def _is_section_title(key: str, value: Any) -> bool:
    if not isinstance(value, str) or not 0 < len(value) <= 100 or "<" in value:
        return False
    return _normalise_key(key) in _SECTION_TITLES or heading_kind(value) is not Kind.UNKNOWN


def _lone_text(value: Any) -> str:
    """A list's item that is a text, or an object with nothing but one."""
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    return value if isinstance(value, str) else ""


def _items(lines: Sequence[str]) -> Iterator[Block]:
    for line in lines:
        blocks = read_blocks(line)
        yield from [Block(blocks[0].text, item=True)] if len(blocks) == 1 else blocks


def _read_facts(keys: Mapping[str, Any]) -> dict[str, str]:
    readers = {"location": read_places, "salary": read_salary}
    facts = {}
    for fact, words in _FACTS.items():
        values = (value for key, value in keys.items() if value and words.search(key))
        texts = (readers.get(fact, join_names)(value) for value in values)
        facts[fact] = next((text for text in texts if 0 < len(text) <= _TITLE_CHARS), "")
    return facts


def _read_array(values: list[Any], identity: PageIdentity) -> Iterator[_Candidate]:
    """A job in a list without keys: the page's title, and long texts beside it."""
    # A part is a text, or the text in a list of one or two values.
    inner = [value if isinstance(value, list) and len(value) <= 2 else [value] for value in values]
    texts = (text for part in inner for text in part if isinstance(text, str))
    parts = [text for text in texts if len(text) >= _PROSE_CHARS and "<" in text]
    if len(parts) < 2:
        return
    short = (text for text in values if isinstance(text, str) and 3 < len(text) <= _TITLE_CHARS)
    title = next((text for text in short if identity.names(text)), "")
    body = join_fields([(Kind.UNKNOWN, read_blocks(part)) for part in parts])
    if title and Kind.REQUIRED in split_blocks(body).kinds:
        yield _Candidate(Posting(clean_line(title), body), located=False, named=True)
