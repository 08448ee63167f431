"""The JSON that a page carries for its own scripts: in scripts, attributes and code tags."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import unquote

from penstock.text.html import PageText

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
