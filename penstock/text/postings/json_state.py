"""Job postings in the JSON that a page carries for its own scripts."""

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import unquote

from penstock.text.charsets import clean_line
from penstock.text.html import PageText
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

_CALL = "self.__next_f.push("
_ROW = re.compile(r"([0-9a-f]+):(?:T([0-9a-f]{1,8}),)?")
_LEAST_VALUES = 8
_DEPTH = 24


def _join_stream(scripts: Iterable[str]) -> str:
    """React's server components arrive as many calls that push pieces of one text."""
    calls = (script[len(_CALL) :] for script in scripts if script.startswith(_CALL))
    values = (_load(call.rstrip().rstrip(";").removesuffix(")")) for call in calls)
    pushed = (value[1] for value in values if isinstance(value, list) and value[1:])
    return "".join(piece for piece in pushed if isinstance(piece, str))


def _load(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def _read_stream(stream: str) -> dict[str, Any]:
    """The stream's rows by the names other rows refer to them with (`$1e`).

    A row is `id:json` and a line end, or `id:T`, a length in bytes and that much text.
    """
    rows: dict[str, Any] = {}
    place = 0
    while place < len(stream):
        row = _ROW.match(stream, place)
        if row and row[2]:
            count = int(row[2], 16)
            first = stream[row.end() : row.end() + count].encode("utf-8", "replace")[:count]
            rows[f"${row[1]}"] = text = first.decode(errors="ignore")
            place = row.end() + len(text)
        else:
            end = stream.find("\n", place) % (len(stream) + 1)
            if row:
                rows[f"${row[1]}"] = _load(stream[row.end() : end])
            place = end + 1
    return rows


def expand_flat(value: Any) -> Any:
    """The state behind one long list in which numbers point at the list's other values."""
    if not isinstance(value, list) or len(value) < _LEAST_VALUES:
        return value
    objects = [item for item in value if isinstance(item, dict) and item]
    if not objects or any(type(ref) is not int for item in objects for ref in item.values()):
        return value
    return _Flat(value).follow(0, _DEPTH)


class _Flat:
    """Follows the numbers, each once per depth, so that a list that points at itself ends."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values
        self._found: dict[tuple[int, int], Any] = {}

    def follow(self, ref: Any, depth: int) -> Any:
        if type(ref) is not int or not 0 <= ref < len(self._values):
            return ref if isinstance(ref, str) else None
        if (ref, depth) not in self._found:
            self._found[ref, depth] = self._read(self._values[ref], depth)
        return self._found[ref, depth]

    def _read(self, value: Any, depth: int) -> Any:
        if not isinstance(value, dict | list):
            return value
        if not depth:
            return None
        if isinstance(value, list):
            return [self.follow(ref, depth - 1) for ref in value]
        return {self._key(key): self.follow(ref, depth - 1) for key, ref in value.items()}

    def _key(self, key: str) -> str:
        """Keys are plain, or `_` and the number of the text they are."""
        number = key.removeprefix("_")
        return str(self.follow(int(number), 0)) if number != key and number.isdecimal() else key


_MOST_CHARS = 4_000_000
_LEAST_CHARS = 200
_LEAST_OBJECT = 40
# How many places in one script may look like JSON without being JSON.
_MOST_ATTEMPTS = 60

# JSON itself after `=`, `(`, `return` or a name and a colon; or a string that holds JSON.
_OPENING = re.compile(
    r"(?:[=(]|\breturn\b|\b[a-zA-Z_]\w*\s*:)\s*(?=[\[{])"
    r"|[=(]\s*(?=[\"'`](?:[\[{]|%7[bB]|%5[bB]|\\x7[bB]))"
)
_NEAR = 10_000
_DECODER = json.JSONDecoder(strict=False)
# The parts of a script's object, also those that JSON does not have.
_STRING = r'"(?:[^"\\]|\\.)*+"|(?P<single>\'(?:[^\'\\]|\\.)*+\'|`(?:[^`\\]|\\.)*+`)'
_BRACKET = re.compile(rf"{_STRING}|(?P<open>[\[{{(])|(?P<close>[\]}})])", re.DOTALL)
_TOKEN = re.compile(
    rf"{_STRING}|void 0|![01]|(?P<name>[A-Za-z_$][\w$.]*+)(?P<colon>\s*+:)?|,(?=\s*+[}}\]])",
    re.DOTALL,
)
_WORDS = {"true": "true", "false": "false", "!0": "true", "!1": "false", ",": ""}
_NULLS = ("null", "undefined", "NaN", "void 0")
_PARAMETERS = re.compile(r"function\s*\(([\w$,\s]*)\)\s*\{\s*return\s*\Z")
_ARGUMENTS = re.compile(r"\s*;?\s*\}\s*\)?\s*\(")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_COMMENTED = re.compile(r"<code[^>]*>\s*<!--(\s*[{\[].{200,}?)-->", re.DOTALL)
_ATTRIBUTES = f"//@*[string-length() > {_LEAST_CHARS}]"
# Angular's own escapes.
_ENTITIES = {"&q;": '"', "&s;": "'", "&l;": "<", "&g;": ">", "&a;": "&"}


def find_json(page: PageText, wanted: Callable[[str], bool]) -> Iterator[Any]:
    """The JSON values in those scripts, attributes and code tags whose text is wanted."""
    scripts = page.tree.xpath("//script[not(@src) and not(contains(@type, 'ld+json'))]")
    texts = [script.text or "" for script in scripts]
    stream = _join_stream(texts) if "__next_f" in page.source else ""
    if wanted(stream):
        yield _read_stream(stream)

    def is_read(text: str) -> bool:
        return _LEAST_CHARS < len(text) <= _MOST_CHARS and wanted(text)

    for text in filter(is_read, texts):
        bare = text.strip().removeprefix("<!--").removesuffix("-->").strip()
        yield from list(load_json(bare)) or _read_code(text)
    for text in filter(is_read, _tagged(page)):
        yield from load_json(text)


def _tagged(page: PageText) -> Iterator[str]:
    if "<code" in page.source:
        yield from (code.text or "" for code in page.tree.xpath("//code"))
        yield from _COMMENTED.findall(page.source)
    yield from (value for value in map(str, page.tree.xpath(_ATTRIBUTES)) if value[0] in "{[")


def load_json(text: str) -> Iterator[Any]:
    """The value of a text that is JSON, as it is, percent-encoded, or escaped as in a string."""
    bare = text.strip()
    if bare.startswith(("%7B", "%5B", "%7b", "%5b")):
        bare = unquote(bare)
    elif bare[1:4] == "&q;":
        for entity, char in _ENTITIES.items():
            bare = bare.replace(entity, char)
    elif bare.startswith(("{\\u0022", "{\\x22", '{\\"')):
        bare = _unescape(bare)
    if bare[:1] in ("{", "["):
        try:
            yield expand_flat(json.loads(bare, strict=False))
        except (ValueError, RecursionError):
            return


def _read_code(text: str) -> Iterator[Any]:
    """The JSON in assignments, calls and named arguments of a script."""
    place = 0
    for _ in range(_MOST_ATTEMPTS):
        opening = _OPENING.search(text, place)
        if opening is None:
            return
        place = opening.end()
        if text[place] in "{[":
            value, place = _decode(text, place)
            yield value
        else:
            literal, place = _read_string(text, place)
            yield from load_json(literal)


def _decode(text: str, place: int) -> tuple[Any, int]:
    """The value at this place, None when it is no object, and where to look on."""
    try:
        value, end = _DECODER.raw_decode(text, place)
    except (ValueError, RecursionError):
        end = _find_end(text, place)
        value = _decode_scripted(text[place:end]) if end - place >= _LEAST_OBJECT else None
        if value is None:
            # What is long is not tried again from within: that takes quadratic time.
            return None, place + 1 if end - place < _NEAR else end
        if isinstance(value, dict):
            value |= _read_arguments(text[max(0, place - _NEAR) : place], text[end : end + _NEAR])
    return expand_flat(value), end


def _find_end(text: str, place: int) -> int:
    """Where the bracket that opens at this place is closed."""
    depth = 0
    for found in _BRACKET.finditer(text, place):
        depth += bool(found["open"]) - bool(found["close"])
        if not depth and found["close"]:
            return found.end()
    return len(text)


def _decode_scripted(text: str) -> Any:
    """The value of an object as scripts write them, with `$a` for a variable a."""
    try:
        return json.loads(_TOKEN.sub(_to_json, text), strict=False)
    except (ValueError, RecursionError):
        return None


def _to_json(found: re.Match[str]) -> str:
    token = found[0]
    if found["single"]:
        return json.dumps(_unescape(token[1:-1]))
    if found["name"] and found["colon"]:
        return f"{json.dumps(found['name'])}:"
    if token in _NULLS:
        return "null"
    if token in _WORDS or token[0] == '"':
        return _WORDS.get(token, token)
    return json.dumps(f"${token}")


def _read_arguments(before: str, after: str) -> dict[str, Any]:
    """The arguments of the function that returns an object, by `$` and its parameters' names."""
    names, called = _PARAMETERS.search(before), _ARGUMENTS.match(after)
    if not names or not called:
        return {}
    end = _find_end(after, called.end() - 1)
    values = _decode_scripted(f"[{after[called.end() : end - 1]}]")
    keys = (f"${name.strip()}" for name in names[1].split(","))
    return dict(zip(keys, values or (), strict=False))


def _read_string(text: str, place: int) -> tuple[str, int]:
    """The string literal at this place, and where it ends."""
    quote = text[place]
    literal = re.compile(rf"[^{quote}\\]*(?:\\.[^{quote}\\]*)*{quote}", re.DOTALL)
    found = literal.match(text, place + 1)
    return (_unescape(found[0][:-1]), found.end()) if found else ("", len(text))


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        return chr(int(code, 16)) if code else _CONTROL.get(match[3], match[3])

    plain = _ESCAPE.sub(replace, text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "ignore")


_MOST_VALUES = 200_000
_MOST_NESTED = 20
_NESTED_OPENINGS = ('{"', "[{", '["', "[[")
_LEAST_BODY = 200
_PROSE_CHARS = 60
_TITLE_CHARS = 200
_SECTION_DEPTH = 6
# Most states of a job have one of these.
_SIGNS = ("itle", "name", "<p", "<li", "003cp", "003Cp", "&lt;")
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
        r"^employmenttype|^typeofemployment|^commitment$|^(job|time|contract)type$"
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
    roots = find_json(page, lambda text: _is_wanted(text, page, identity))
    found = [candidate for root in roots for candidate in _candidates(root, identity)]
    meant = [candidate for candidate in found if candidate.located or candidate.named]
    if not meant and len({candidate.posting.title for candidate in found}) > 1:
        return None
    best = max(meant or found, key=lambda candidate: candidate.weight, default=None)
    return best.posting if best else None


def _is_wanted(text: str, page: PageText, identity: PageIdentity) -> bool:
    signs = any(sign in text for sign in _SIGNS)
    return signs and (identity.is_hiring or hints_at_job(text, page.tree.get("lang")))


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
