"""The JSON that pages carry for their own scripts: data tags, assignments, calls, attributes."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

from penstock.text.html.page import Page
from penstock.text.postings.framework_state import expand_flat, join_stream, read_stream

_MOST_CHARS = 4_000_000
_LEAST_CHARS = 200
# How often, in one script, something may look like JSON and not be it.
_MOST_ATTEMPTS = 60

# JSON itself after `=`, `(` or a name and a colon; or a string that holds JSON.
_OPENING = re.compile(
    r"(?:[=(]|\b[a-zA-Z_]\w*\s*:)\s*(?=[\[{])|[=(]\s*(?=[\"'`](?:[\[{]|%7[bB]|%5[bB]|\\x7[bB]))"
)
_NEAR = 10_000
_DECODER = json.JSONDecoder(strict=False)
_NOT_JSON = ("undefined", "NaN", "void 0")
_UNDEFINED = re.compile(r"(?<=[:,\[])\s*(?:undefined|NaN|void 0)\s*(?=[,}\]])")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_COMMENTED = re.compile(r"<code[^>]*>\s*<!--(\s*[{\[].{200,}?)-->", re.DOTALL)
_ATTRIBUTES = f"//@*[string-length() > {_LEAST_CHARS} and starts-with(name(), 'data-')]"


def find_json(page: Page, wanted: Callable[[str], bool]) -> Iterator[Any]:
    """The JSON values in those scripts, attributes and code tags whose text is wanted."""
    scripts = page.tree.xpath("//script[not(@src) and not(contains(@type, 'ld+json'))]")
    texts = [script.text or "" for script in scripts]
    stream = join_stream(texts) if "__next_f" in page.source else ""
    if wanted(stream):
        yield read_stream(stream)
    for text in filter(wanted, filter(_has_fair_size, texts)):
        yield from _read_script(text)
    for text in filter(wanted, filter(_has_fair_size, _tagged(page))):
        yield from load_json(text)


def _has_fair_size(text: str) -> bool:
    return _LEAST_CHARS < len(text) <= _MOST_CHARS


def _tagged(page: Page) -> Iterator[str]:
    if "<code" in page.source:
        yield from (code.text or "" for code in page.tree.xpath("//code"))
        yield from _COMMENTED.findall(page.source)
    if '="{&quot;' in page.source or "='{\"" in page.source or '="[{' in page.source:
        yield from map(str, page.tree.xpath(_ATTRIBUTES))


def _read_script(text: str) -> Iterator[Any]:
    bare = text.strip().removeprefix("<!--").removesuffix("-->").strip()
    whole = list(load_json(bare))
    yield from whole or _read_code(text)


def load_json(text: str) -> Iterator[Any]:
    """The value of a text that is JSON, as it is, percent-encoded, or escaped as in a string."""
    bare = text.strip()
    if bare.startswith(("%7B", "%5B", "%7b", "%5b")):
        bare = unquote(bare)
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
    """The value at this place, None when it is no JSON, and where to look on."""
    try:
        value, end = _DECODER.raw_decode(text, place)
    except RecursionError:
        return None, len(text)
    except json.JSONDecodeError as error:
        return _decode_loosely(text, place, error.pos)
    return expand_flat(value), end


def _decode_loosely(text: str, place: int, stopped: int) -> tuple[Any, int]:
    """Scripts may hold `undefined`, which JSON does not know."""
    # What failed late is not tried again from within: that would take for ever on a long script.
    after = place + 1 if stopped - place < _NEAR else stopped
    if not text.startswith(_NOT_JSON, stopped):
        return None, after
    try:
        value, _ = _DECODER.raw_decode(_UNDEFINED.sub("null", text[place:]))
    except (ValueError, RecursionError):
        return None, len(text)
    # Where it ends in the original is not known; what a script holds besides is small.
    return expand_flat(value), len(text)


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
