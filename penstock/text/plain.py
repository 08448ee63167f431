"""Text, Markdown, RST, CSV, JSON and XML as readable text."""

import csv
import json
import re
from collections.abc import Iterator
from typing import Any

from penstock.documents import ExtractedText, RawDocument
from penstock.errors import DocumentFault, ErrorClass
from penstock.text.charsets import decode_text
from penstock.text.kinds import CSV, JSON, MARKDOWN, PLAIN, RST, XML

_SNIFFED_CHARS = 8192
_MARKDOWN_TITLE = re.compile(r"^#\s+(.+?)\s*#*$|^(\S.*)\n=+\s*$", re.MULTILINE)
_RST_TITLE = re.compile(r"^(\S.*)\n([=\-~#*^\"'`+])\2{2,}\s*$", re.MULTILINE)


def extract_plain(raw: RawDocument) -> ExtractedText:
    """The text as it stands."""
    return ExtractedText(decode_text(raw.content, raw.media_type), media_type=PLAIN)


def extract_markdown(raw: RawDocument) -> ExtractedText:
    """Markdown is readable as it stands; its first heading is the title."""
    return _titled(raw, _MARKDOWN_TITLE, MARKDOWN)


def extract_rst(raw: RawDocument) -> ExtractedText:
    """reStructuredText is readable as it stands; its first heading is the title."""
    return _titled(raw, _RST_TITLE, RST)


def _titled(raw: RawDocument, heading: re.Pattern[str], kind: str) -> ExtractedText:
    text = decode_text(raw.content, raw.media_type).replace("\r\n", "\n")
    found = heading.search(text)
    title = next(filter(None, found.groups()), None) if found else None
    return ExtractedText(text, title=title, media_type=kind)


def extract_csv(raw: RawDocument) -> ExtractedText:
    """One line per row, ` | ` between cells."""
    text = decode_text(raw.content, raw.media_type)
    try:
        dialect = csv.Sniffer().sniff(text[:_SNIFFED_CHARS], delimiters=",;\t|")
        rows = list(csv.reader(text.splitlines(keepends=True), dialect))
    except csv.Error:
        return ExtractedText(text, media_type=CSV)
    lines = (" | ".join(" ".join(cell.split()) for cell in row) for row in rows)
    return ExtractedText("\n".join(lines), media_type=CSV, metadata={"rows": len(rows)})


def extract_json(raw: RawDocument) -> ExtractedText:
    """One `key: value` line per value, inner values indented; broken JSON stays as it stands."""
    text = decode_text(raw.content, raw.media_type)
    try:
        lines = list(_json_lines(json.loads(text, strict=False), ""))
    except ValueError:
        return ExtractedText(text, media_type=JSON)
    except RecursionError as error:
        raise DocumentFault(
            ErrorClass.CORRUPTION, f"{raw.name}: the JSON is nested too deeply to be read"
        ) from error
    return ExtractedText("\n".join(lines), media_type=JSON)


def _json_lines(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _json_entry(f"{indent}{key}:", item, indent)
    elif isinstance(value, list):
        for item in value:
            yield from _json_entry(f"{indent}-", item, indent)
    else:
        yield f"{indent}{_json_scalar(value)}"


def _json_entry(label: str, item: Any, indent: str) -> Iterator[str]:
    if isinstance(item, dict | list):
        yield label
        yield from _json_lines(item, f"{indent}  ")
    else:
        yield f"{label} {_json_scalar(item)}"


def _json_scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def extract_xml(raw: RawDocument) -> ExtractedText:
    """The text of all elements, one line each; entities a document defines are not expanded."""
    from lxml import etree  # type: ignore[import-untyped]

    parser = etree.XMLParser(
        resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False, recover=True
    )
    source = decode_text(raw.content, raw.media_type or _xml_declared(raw.content))
    body = re.sub(r"^\s*<\?xml[^>]*\?>", "", source.lstrip("\ufeff"), count=1)
    try:
        root = etree.fromstring(body.encode("utf-8", "ignore"), parser)
    except etree.XMLSyntaxError as error:
        raise DocumentFault(
            ErrorClass.CORRUPTION, f"{raw.name}: the XML is broken ({error})"
        ) from error
    if root is None:
        raise DocumentFault(ErrorClass.CORRUPTION, f"{raw.name}: the XML has no element")
    return ExtractedText("\n".join(_element_texts(root)), media_type=XML)


def _xml_declared(content: bytes) -> str | None:
    """The encoding in the XML declaration, in the form of a Content-Type header."""
    found = re.match(rb"""\s*<\?xml[^>]*encoding\s*=\s*["']([\w.:-]+)""", content)
    return f"application/xml; charset={found.group(1).decode('ascii')}" if found else None


def _element_texts(root: Any) -> Iterator[str]:
    for element in root.iter():
        own = element.text if isinstance(element.tag, str) else ""
        for text in (own, element.tail if element is not root else ""):
            if line := " ".join((text or "").split()):
                yield line
