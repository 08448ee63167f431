"""Documents built to make a parser loop, swell, recurse or reach out; and mere oddities."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.documents import RawDocument
from penstock.errors import ErrorClass
from tests.hostile.seeds import PHRASE

SENSIBLE = frozenset({None, ErrorClass.CORRUPTION, ErrorClass.EMPTY, ErrorClass.TOO_LARGE})
TEXT = frozenset({None})
CORRUPT = frozenset({ErrorClass.CORRUPTION})
EMPTY = frozenset({ErrorClass.EMPTY})
TOO_LARGE = frozenset({ErrorClass.TOO_LARGE})
# Where a library may run out of memory, and end its process rather than say so.
FATAL = SENSIBLE | {ErrorClass.UNKNOWN, ErrorClass.TIMEOUT}

Expected = frozenset[ErrorClass | None]


@dataclass(frozen=True, slots=True)
class Case:
    """A document, what may become of it, and a phrase that its text must hold."""

    raw: RawDocument
    expected: Expected
    phrase: str = ""


def case(name: str, content: bytes | str, expected: Expected = SENSIBLE, phrase: str = "") -> Case:
    data = content.encode() if isinstance(content, str) else content
    return Case(RawDocument(name, data), expected, phrase)


def xml_bomb(levels: int = 12) -> str:
    """Ten times the text at each level."""
    entities = ['<!ENTITY e0 "boom">']
    entities += (f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, levels))
    return f"<!DOCTYPE x [{''.join(entities)}]>"


def external_entity(address: str) -> str:
    return f'<!DOCTYPE x [<!ENTITY out SYSTEM "{address}">]>'


def xml_traps(scale: int) -> Iterator[Case]:
    top = "&e11;"
    yield case("laughs.xml", f"{xml_bomb()}<x>{PHRASE} {top}</x>")
    yield case("laughs-attribute.xml", f'{xml_bomb()}<x a="{top}">{PHRASE}</x>')
    quadratic = f'<!DOCTYPE x [<!ENTITY a "{"b" * 50_000}">]><x y="{"&a;" * 5_000}">'
    yield case("quadratic.xml", f"{quadratic}{'&a;' * 50_000} {PHRASE}</x>")
    for address in (__file__, f"file://{__file__}", "http://127.0.0.1:9/x"):
        reaching = f"{external_entity(address)}<x>{PHRASE} &out;</x>"
        yield case("reaching-out.xml", reaching, TEXT, PHRASE)
    parameter = '<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1:9/"> %p;]>'
    yield case("parameter.xml", f"{parameter}<x>{PHRASE}</x>", TEXT, PHRASE)
    yield case("deep.xml", f"{'<a>' * 100_000}{PHRASE}{'</a>' * 100_000}", CORRUPT)
    yield case("wide.xml", f"<x>{'<a>b</a>' * scale}{PHRASE}</x>", TEXT, PHRASE)
    attributes = " ".join(f'a{i}="{i}"' for i in range(5_000))
    yield case("attributes.xml", f"<x {attributes}>{PHRASE}</x>", TEXT, PHRASE)
    yield case("unclosed.xml", f"<x><y>{PHRASE}", TEXT, PHRASE)
    yield case("text-node.xml", f"<x>{'word ' * 2_200_000}</x>", TEXT)
    yield case("no-element.xml", "<?xml version='1.0'?><!-- nothing -->", SENSIBLE - {None})
    yield case("comments.xml", "<!---->" * 585 + f"<x>{PHRASE}</x>", TEXT, PHRASE)


def html_traps(scale: int) -> Iterator[Case]:
    yield case("deep.html", f"<html>{'<div>' * 100_000}{PHRASE}", TEXT)
    yield case("deep-inline.html", f"<html>{'<b>' * 2_000}{PHRASE}", TEXT)
    yield case("deep-tables.html", f"<html>{'<table><tr><td>' * 1_000}{PHRASE}")
    yield case("tags.html", f"<html><p>{PHRASE}</p>{'<p>x</p>' * (scale // 10)}", TEXT, PHRASE)
    yield case("attribute.html", f'<html><p title="{"x" * 1_000_000}">{PHRASE}</p>', TEXT, PHRASE)
    yield case("comments.html", f"{'<!---->' * 585}<html><p>{PHRASE}</p>", TEXT, PHRASE)
    yield case("script.html", f"<html><p>{PHRASE}</p><script>{'<p>' * 10_000}", TEXT, PHRASE)
    nested = "[" * 50_000
    script = f'<script type="application/ld+json">{nested} JobPosting</script>'
    yield case("deep-json-ld.html", f"<html><head>{script}</head><p>{PHRASE}</p>", TEXT, PHRASE)
    entities = "&#x10FFFF;&#0;&bogus;" * 10_000
    yield case("entities.html", f"<html><p>{PHRASE} {entities}", TEXT, PHRASE)
    yield case("charset.html", f"<html><meta charset='no-such'><p>{PHRASE}</p>", TEXT, PHRASE)
    yield case("angles.html", f"<html>{PHRASE}{'<' * 100_000}", TEXT)
    yield case("empty.html", "<html><body></body></html>", EMPTY)


def data_traps(scale: int) -> Iterator[Case]:
    yield case("deep.json", "[" * 100_000 + "]" * 100_000, CORRUPT)
    yield case("deep-objects.json", '{"a":' * 100_000 + "1" + "}" * 100_000, CORRUPT)
    yield case("deep-line.jsonl", f'{{"a": "{PHRASE}"}}\n' + "[" * 100_000, CORRUPT)
    keys = json.dumps({f"key{i}": i for i in range(scale)} | {"last": PHRASE})
    yield case("keys.json", keys, TEXT, PHRASE)
    yield case("number.json", f'{{"n": {"9" * 100_000}, "a": "{PHRASE}"}}', TEXT, PHRASE)
    yield case("surrogates.json", rf'{{"a": "\ud800 \udfff\u0000 {PHRASE}"}}', TEXT, PHRASE)
    yield case("unclosed.json", f'{{"a": "{PHRASE}"', TEXT, PHRASE)
    yield case("columns.csv", f"{PHRASE}{',' * scale}\n1,2", TEXT, PHRASE)
    yield case("unclosed-quote.csv", f'a,b\n"open,{PHRASE}\n' + "1,2\n" * 20_000, TEXT, PHRASE)
    yield case("quotes.csv", PHRASE + "," + '"' * 100_001, TEXT, PHRASE)
    yield case("long-cell.csv", f"a,b\n1,{'x' * 200_000}\n2,{PHRASE}", TEXT, PHRASE)
    yield case("ragged.csv", "\n".join(["a," * (i % 50) for i in range(5_000)] + [PHRASE]), TEXT)
    yield case("nul.csv", f"a,b\n1,\0{PHRASE}\n".encode(), TEXT, PHRASE)


def text_traps(scale: int) -> Iterator[Case]:
    yield case("line.txt", "word " * (2 * scale), TEXT, "word word")
    yield case("lines.txt", "\n" * scale + PHRASE, TEXT, PHRASE)
    yield case("marks.txt", f"{PHRASE} a" + "\u0301\u0327" * 200_000, TEXT, PHRASE)
    yield case("tibetan.txt", f"{PHRASE} " + "\u0f73" * 200_000, TEXT, PHRASE)
    yield case("right-to-left.txt", f"{PHRASE} \u202e" + "שלום עולם " * 5_000, TEXT, PHRASE)
    yield case("hashes.md", f"# {'#' * 500_000} x\n{PHRASE}", TEXT, PHRASE)
    yield case("spaces.md", f"# {' ' * 500_000}x\n{PHRASE}", TEXT, PHRASE)
    yield case("front.md", f"---\n{'title ' * 50_000}\n{PHRASE}", TEXT, PHRASE)
    yield case("equals.rst", f"{PHRASE}\n{'=' * 500_000}x", TEXT, PHRASE)
    yield case("empty.txt", b"", EMPTY)
    yield case("one-byte.txt", b"x", TEXT, "x")
    yield case("one-nul.txt", b"\0", EMPTY)
    yield case("nuls.txt", bytes(100_000), EMPTY)
    yield case("nuls.pdf", bytes(100_000), CORRUPT)
    yield case("nuls.docx", bytes(100_000), CORRUPT)
    yield case("mark.txt", b"\xef\xbb\xbf", EMPTY)
    yield case("mark-16.txt", b"\xff\xfe", EMPTY)
    yield case("odd-16.txt", PHRASE.encode("utf-16") + b"x", TEXT, PHRASE)
    yield case("unmarked-16.txt", PHRASE.encode("utf-16-le"), TEXT, PHRASE)
    yield case("marked-32.txt", PHRASE.encode("utf-32"), TEXT, PHRASE)
    yield case("invalid.txt", PHRASE.encode() + b"\xff\xfe\xc0\xaf" * 100, TEXT, PHRASE)
    yield case("surrogates.txt", PHRASE.encode() + b"\xed\xa0\x80" * 100, TEXT, PHRASE)
    yield case("noise.txt", bytes(range(256)) * 40, frozenset({ErrorClass.UNSUPPORTED}))
    yield case("http://[broken/x.txt?a=b", PHRASE, TEXT, PHRASE)
