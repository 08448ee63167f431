"""Plain text, Markdown, reStructuredText, CSV, JSON and XML as readable text."""

import csv
import html.entities
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from penstock.documents import ExtractedText, RawDocument
from penstock.errors import DocumentFault, ErrorClass
from penstock.text.charsets import decode_text
from penstock.text.html import readable_value
from penstock.text.media_types import CSV, JSON, MARKDOWN, PLAIN, RST, XML

# A title is near the start and not longer than this.
_TITLE_WINDOW = 65_536
_LONGEST_TITLE = 500
_FRONT_MATTER = re.compile(r"\s*(---|\+\+\+)[ \t]*\n(.*?)\n(?:\1|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL)
_FRONT_TITLE = re.compile(
    r"^title[ \t]*[:=][ \t]*(?:[>|][+-]?[ \t]*\n[ \t]+)?(\S.*)$", re.IGNORECASE | re.MULTILINE
)
_FENCE = re.compile(r" {0,3}(```|~~~)")
_HEADING = re.compile(r"#[ \t]+(.*)")
_ANY_HEADING = re.compile(r"(#{1,6})[ \t]+\S")
_UNDERLINE = re.compile(r"=+\s*")
_ADORNMENT = re.compile(r"([=\-~#*^\"'`+:._])\1{2,}\s*")


def extract_plain(raw: RawDocument) -> ExtractedText:
    """The text, unchanged."""
    return ExtractedText(decode_text(raw.content, raw.media_type), media_type=PLAIN)


def extract_markdown(raw: RawDocument) -> ExtractedText:
    """The title is the front matter's, or the first heading."""
    text = _decode(raw)
    start = text[:_TITLE_WINDOW]
    front = _FRONT_MATTER.match(start)
    found = _FRONT_TITLE.search(front[2]) if front else None
    title = found[1].strip().strip("\"'") if found else None
    body = start[front.end() :] if front else start
    return ExtractedText(
        text,
        title=title or _markdown_heading(body),
        media_type=MARKDOWN,
        headings=(*_markdown_headings(text),),
    )


def extract_rst(raw: RawDocument) -> ExtractedText:
    """The title is the first heading."""
    text = _decode(raw)
    return ExtractedText(text, title=_rst_heading(text[:_TITLE_WINDOW]), media_type=RST)


def _decode(raw: RawDocument) -> str:
    return decode_text(raw.content, raw.media_type).replace("\r\n", "\n")


def _markdown_heading(text: str) -> str | None:
    fenced = False
    for line, below in pairwise([*text.split("\n"), ""]):
        if _FENCE.match(line):
            fenced = not fenced
        if fenced or len(line) > _LONGEST_TITLE:
            continue
        if found := _HEADING.match(line):
            return found.group(1).rstrip().rstrip("#").rstrip() or None
        if line.strip() and not line[:1].isspace() and _UNDERLINE.fullmatch(below):
            return line
    return None


def _markdown_headings(text: str) -> Iterator[tuple[int, str]]:
    """The lines that begin with the signs of a heading, and how many they are."""
    if "#" not in text:
        return
    fenced = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (found := _ANY_HEADING.match(line)):
            yield len(found[1]), line


def _rst_heading(text: str) -> str | None:
    above = ""
    for line, below in pairwise([*text.split("\n"), ""]):
        # Only between two adornments may a title be indented.
        flush = not line[:1].isspace() or (above and above.rstrip() == below.rstrip())
        is_title = line.strip() and len(line) <= _LONGEST_TITLE and not _ADORNMENT.fullmatch(line)
        if is_title and flush and _ADORNMENT.fullmatch(below):
            return line.strip()
        above = line
    return None


_DELIMITERS = ",;\t|"
_SAMPLE_CHARS = 65_536
_SAMPLE_LINES = 100
_MOST_COLUMNS = 200

Rows = list[list[str]]


def extract_csv(raw: RawDocument) -> ExtractedText:
    """One line per row, ` | ` between cells."""
    text = decode_text(raw.content, raw.media_type)
    # The delimiter that splits most rows into the same number of cells.
    sample = text[:_SAMPLE_CHARS].splitlines()[:_SAMPLE_LINES]
    delimiter = max(_DELIMITERS, key=lambda one: _agreement(sample, one))
    rows = _read_rows(text, delimiter)
    lines = (" | ".join(" ".join(cell.split()) for cell in row) for row in rows)
    return ExtractedText(
        "\n".join(lines),
        media_type=CSV,
        metadata={"rows": len(rows), "columns": _header(rows)},
    )


def _agreement(lines: Sequence[str], delimiter: str) -> tuple[float, int]:
    widths = Counter(len(_read_row(line, delimiter)) for line in lines if line.strip())
    widths.pop(1, None)  # a line that is not split says nothing
    if not widths:
        return 0.0, 0
    width, agreeing = max(widths.items(), key=lambda item: (item[1], item[0]))
    return agreeing / len(lines), width


def _read_rows(text: str, delimiter: str) -> Rows:
    try:
        lines = io.StringIO(text, newline="")
        return list(csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True))
    except csv.Error:
        # A quote that is never closed would include all that follows: read line by line instead.
        return [_read_row(line, delimiter) for line in io.StringIO(text, newline=None)]


def _read_row(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:
        return [line]


def _header(rows: Rows) -> list[str]:
    """The names of the columns, if the first row looks like a header."""
    names = [cell.strip() for cell in rows[0]] if len(rows) > 1 else []
    distinct = len(set(names)) == len(names) and all(names)
    words = not any(name[:1].isdigit() for name in names)
    return names if distinct and words and len(names) <= _MOST_COLUMNS else []


# Deeper values are not indented further: the white space would outgrow the text.
_MOST_INDENTS = 12
_CONTAINERS = (dict, list)


def extract_json(raw: RawDocument) -> ExtractedText:
    """One line per value, inner values indented; text that is not JSON is kept unchanged."""
    text = decode_text(raw.content, raw.media_type)
    try:
        return _extract_json(text)
    except RecursionError as error:
        raise DocumentFault(
            ErrorClass.CORRUPTION,
            f"{raw.name}: the JSON is nested too deeply to be read; flatten it",
        ) from error


def _extract_json(text: str) -> ExtractedText:
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        return ExtractedText(_read_json_lines(text), media_type=JSON)
    title = value.get("title") if isinstance(value, dict) else None
    return ExtractedText(
        "\n".join(_value_lines(value)),
        title=title if isinstance(title, str) else None,
        media_type=JSON,
    )


def _read_json_lines(text: str) -> str:
    """JSON Lines (https://jsonlines.org), a blank line after each record; or the text itself."""
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines or not lines[0].lstrip().startswith(("{", "[")):
        return text
    records = [_read_record(line) for line in lines]
    # In a broken JSON document, hardly any line is a record by itself.
    if 2 * sum(record is not None for record in records) < len(lines):
        return text
    return "\n\n".join(record or line for record, line in zip(records, lines, strict=True))


def _read_record(line: str) -> str | None:
    try:
        value = json.loads(line, strict=False)
    except ValueError:
        return None
    return "\n".join(_value_lines(value)) if isinstance(value, _CONTAINERS) else None


def _value_lines(value: Any) -> Iterator[str]:
    if not isinstance(value, _CONTAINERS):
        yield _scalar(value)
        return
    stack = [_entries(value)]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
            continue
        label, item = entry
        label = "  " * min(len(stack) - 1, _MOST_INDENTS) + label
        if isinstance(item, _CONTAINERS):
            yield label
            stack.append(_entries(item))
        else:
            yield f"{label} {_scalar(item)}"


def _entries(value: dict[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((f"{key}:", item) for key, item in value.items())
    return (("-", item) for item in value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return readable_value(value)
    return str(value) if type(value) is int else json.dumps(value)


BEYOND_LIMITS = "nested too deeply, or with entities that expand too far"

_DECLARATION = re.compile(r"\s*<\?xml[^>]*\?>")
_ENCODING = re.compile(rb"""\s*<\?xml[^>]*encoding\s*=\s*["']([\w.:-]+)""")
_SPACE = re.compile(r"\s+")
_TITLES = ("{*}title", "{*}article-title")


def extract_xml(raw: RawDocument) -> ExtractedText:
    """One line per element with text; without any text, one line per element's attributes.

    Entities are not expanded.
    """
    root, cut_short = _parse(raw)
    pieces: list[str] = []
    _collect(root, pieces)
    lines = filter(None, map(str.strip, "".join(pieces).split("\n")))
    text = "\n".join(lines) or "\n".join(_attribute_lines(root))
    if cut_short and not text:
        raise _broken(raw, BEYOND_LIMITS)
    return ExtractedText(
        text,
        title=next(filter(None, (e.text for e in root.iter(*_TITLES))), None),
        media_type=XML,
        metadata={"truncated": True} if cut_short else {},
    )


def describe_syntax_error(error: Any) -> str:
    """The reason of an lxml syntax error; raises MemoryError when the parser ran out of memory."""
    from lxml.etree import ErrorTypes  # type: ignore[import-untyped]

    if error.code == ErrorTypes.ERR_NO_MEMORY:
        raise MemoryError
    return BEYOND_LIMITS if error.code == ErrorTypes.ERR_RESOURCE_LIMIT else str(error.msg)


def _parse(raw: RawDocument) -> tuple[Any, bool]:
    """The root element, and whether a limit of the parser cut the document short."""
    from lxml import etree  # type: ignore[import-untyped]

    # The limits of huge_tree=False stop entities that multiply inside attributes, too.
    parser = etree.XMLParser(
        resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False, recover=True
    )
    source = decode_text(raw.content, _declared_type(raw)).lstrip("\ufeff")
    body = source[found.end() :] if (found := _DECLARATION.match(source)) else source
    try:
        root = etree.fromstring(body.encode("utf-8", "ignore"), parser)
    except etree.XMLSyntaxError as error:
        raise _broken(raw, describe_syntax_error(error)) from error
    limited = any(e.type == etree.ErrorTypes.ERR_RESOURCE_LIMIT for e in parser.error_log)
    if root is None:
        raise _broken(raw, BEYOND_LIMITS if limited else "it has no element")
    return root, limited


def _broken(raw: RawDocument, reason: str) -> DocumentFault:
    return DocumentFault(
        ErrorClass.CORRUPTION,
        f"{raw.name}: the XML is broken ({reason}); correct it and send it again",
    )


def _declared_type(raw: RawDocument) -> str | None:
    """The declared type if it has a charset, else one with the charset of the XML declaration."""
    found = _ENCODING.match(raw.content)
    if found is None or "charset" in (raw.media_type or "").lower():
        return raw.media_type
    return f"application/xml; charset={found.group(1).decode('ascii')}"


def _collect(element: Any, pieces: list[str]) -> None:
    """The parser reads no deeper than 256 elements, so recursion is safe."""
    pieces.append(_readable(element.text))
    # The elements inside are words of a running text, such as emphasis or a link.
    inline = bool((element.text or "").strip()) and any((c.tail or "").strip() for c in element)
    for child in element:
        if isinstance(child.tag, str):
            edge = "" if inline and len(child) <= 1 else "\n"
            pieces.append(edge)
            _collect(child, pieces)
            pieces.append(edge)
        elif (text := child.text or "").startswith("&") and text[1:] in html.entities.html5:
            pieces.append(html.unescape(text))
        pieces.append(_readable(child.tail))


def _readable(text: str | None) -> str:
    if not text:
        return ""
    readable = readable_value(text)
    return _SPACE.sub(" ", text) if readable is text else f"\n{readable}\n"


def _attribute_lines(root: Any) -> Iterator[str]:
    for element in root.iter("{*}*"):
        name, *keys = (key.rpartition("}")[2] for key in (element.tag, *element.keys()))
        pairs = zip(keys, element.values(), strict=True)
        if line := ", ".join(f"{key}: {value}" for key, value in pairs if value):
            yield f"{name} {line}"
