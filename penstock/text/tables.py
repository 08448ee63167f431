"""CSV and its relatives as readable rows."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence

from penstock.documents import ExtractedText, RawDocument
from penstock.text.charsets import decode_text
from penstock.text.kinds import CSV

_DELIMITERS = ",;\t|"
_SAMPLE_CHARS = 65_536
_SAMPLE_LINES = 100
_MOST_COLUMNS = 200

Rows = list[list[str]]


def extract_csv(raw: RawDocument) -> ExtractedText:
    """One line per row, ` | ` between cells."""
    text = decode_text(raw.content, raw.media_type)
    rows = _read_rows(text, _find_delimiter(text))
    lines = (" | ".join(" ".join(cell.split()) for cell in row) for row in rows)
    return ExtractedText(
        "\n".join(lines),
        media_type=CSV,
        metadata={"rows": len(rows), "columns": _header(rows)},
    )


def _find_delimiter(text: str) -> str:
    """The one that cuts most rows into the same number of cells."""
    lines = text[:_SAMPLE_CHARS].splitlines()[:_SAMPLE_LINES]
    return max(_DELIMITERS, key=lambda delimiter: _agreement(lines, delimiter))


def _agreement(lines: Sequence[str], delimiter: str) -> tuple[float, int]:
    widths = Counter(len(_read_row(line, delimiter)) for line in lines if line.strip())
    widths.pop(1, None)  # a line that is not cut at all agrees with nothing
    if not widths:
        return 0.0, 0
    width, agreeing = max(widths.items(), key=lambda item: (item[1], item[0]))
    return agreeing / len(lines), width


def _read_rows(text: str, delimiter: str) -> Rows:
    try:
        lines = io.StringIO(text, newline="")
        return list(csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True))
    except csv.Error:
        # A quote that never ends would swallow all that follows; by itself, a line loses nothing.
        return [_read_row(line, delimiter) for line in io.StringIO(text, newline=None)]


def _read_row(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:
        return [line]


def _header(rows: Rows) -> list[str]:
    """The names of the columns, where the first row looks like that."""
    names = [cell.strip() for cell in rows[0]] if len(rows) > 1 else []
    distinct = len(set(names)) == len(names) and all(names)
    return names if distinct and _are_words(names) and len(names) <= _MOST_COLUMNS else []


def _are_words(names: Iterable[str]) -> bool:
    return not any(name[:1].isdigit() for name in names)
