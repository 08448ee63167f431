"""JSON and JSON Lines as readable `key: value` lines."""

import json
from collections.abc import Iterator
from typing import Any

from penstock.documents import ExtractedText, RawDocument
from penstock.errors import DocumentFault, ErrorClass
from penstock.text.charsets import decode_text
from penstock.text.fragments import readable_value
from penstock.text.kinds import JSON

# Deeper values are indented no further, or the white space would outgrow the text.
_MOST_INDENTS = 12
_CONTAINERS = (dict, list)


def extract_json(raw: RawDocument) -> ExtractedText:
    """One line per value, inner values indented; what is no JSON stays as it stands."""
    text = decode_text(raw.content, raw.media_type)
    try:
        return _extract(text)
    except RecursionError as error:
        raise DocumentFault(
            ErrorClass.CORRUPTION,
            f"{raw.name}: the JSON is nested too deeply to be read; flatten it",
        ) from error


def _extract(text: str) -> ExtractedText:
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        return ExtractedText(_read_lines(text), media_type=JSON)
    title = value.get("title") if isinstance(value, dict) else None
    return ExtractedText(
        "\n".join(_value_lines(value)),
        title=title if isinstance(title, str) else None,
        media_type=JSON,
    )


def _read_lines(text: str) -> str:
    """JSON Lines (https://jsonlines.org), a blank line after each record; or the text itself."""
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines or not lines[0].lstrip().startswith(("{", "[")):
        return text
    records = [_read_record(line) for line in lines]
    # A broken JSON document of many lines has hardly a line that is a record.
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
