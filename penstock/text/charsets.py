"""Decodes bytes to text, and cleans text of characters that databases refuse."""

import codecs
import re
import unicodedata
from collections.abc import Mapping
from functools import cache
from typing import Any

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_HEADER = re.compile(r"""charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.ASCII | re.IGNORECASE)
_META = re.compile(rb"""<meta[^<>]*?charset\s*=\s*["']?\s*([\w.:-]{1,40})""")
_XML = re.compile(rb"""\s*<\?xml[^>]{0,200}\sencoding\s*=\s*["']([\w.:-]{1,40})""")
_META_WINDOW = 8192
_SAMPLE_BYTES = 32_768
# Browsers read these labels as the larger Windows charset of each
# (https://encoding.spec.whatwg.org/#names-and-labels).
_READ_AS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
_UNKNOWN_TO_PYTHON = {"x-sjis": "cp932", "windows-31j": "cp932", "x-gbk": "gb18030"}
# Python can decode these, but pages do not use them; some take quadratic time on hostile bytes.
_REFUSED_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape", "utf-7"})
# Up to this share of broken characters, a declared charset is still taken as right.
_BROKEN_SHARE = 0.001
# Short text fits many code pages equally well; these are the common ones.
_COMMON = ("cp1252", "cp1251", "cp1250", "cp1253", "cp1254")


def decode_text(content: bytes, media_type: str | None = None, *, markup: bool = False) -> str:
    """The characters of `content`; bytes that fit no charset become U+FFFD."""
    if certain := certain_charset(content):
        return content.decode(certain, "replace")
    header = _HEADER.search(media_type or "")
    declared = header[1].lower() if header else None, _markup_charset(content) if markup else None
    labels = list(filter(None, map(_python_name, declared)))
    for name in labels:
        text = _decode_strictly(content, name)
        if text is not None:
            return text
    text = _decode_strictly(content, "utf-8")
    return text if text is not None else _decode_broken(content, labels)


def certain_charset(content: bytes) -> str | None:
    """The charset of a byte order mark, or UTF-16 without one.

    Nearly every second byte of Western text in UTF-16 is NUL, which is as certain as a mark.
    """
    for mark, name in _MARKS:
        if content.startswith(mark):
            return name
    sample = content[:_SAMPLE_BYTES]
    half, even, odd = len(sample) // 2, sample[0::2].count(0), sample[1::2].count(0)
    if half > 1 and odd > 0.5 * half and not even:
        return "utf-16-le"
    return "utf-16-be" if half > 1 and even > 0.5 * half and not odd else None


def _markup_charset(content: bytes) -> str | None:
    """The charset in a meta tag, or else in an XML declaration."""
    head = content[:_META_WINDOW].lower()
    found = _META.search(head) or _XML.match(head)
    label = found.group(1).decode("ascii") if found else None
    # A declaration that can be read byte by byte is not in UTF-16.
    return "utf-8" if label and label.startswith("utf-16") else label


def _python_name(label: str | None) -> str | None:
    try:
        name = codecs.lookup(_UNKNOWN_TO_PYTHON.get(label, label)).name if label else None
    except (LookupError, ValueError):
        return None
    return None if name is None or name in _REFUSED_CHARSETS else _READ_AS.get(name, name)


def _decode_strictly(content: bytes, name: str) -> str | None:
    try:
        return content.decode(name)
    except (LookupError, ValueError):
        return None  # LookupError for codecs such as `rot13`, which are not charsets


def _decode_broken(content: bytes, declared: list[str]) -> str:
    """Decode bytes that fit neither UTF-8 nor a declared charset, with the fewest errors."""
    text = content.decode("utf-8", "replace")
    # Few errors per character of several bytes: text in a single-byte charset has more.
    if text.count("\ufffd") < (len(content) - len(text)) / 4:
        return text
    for name in declared:
        text = "" if name == "utf-8" else content.decode(name, "replace")
        if text.count("\ufffd") < _BROKEN_SHARE * len(text):
            return text
    return content.decode(_guess_charset(content), "replace")


def _guess_charset(content: bytes) -> str:
    from charset_normalizer import from_bytes

    matches = from_bytes(content[:_SAMPLE_BYTES])
    best = matches.best()
    if best is None:
        return "cp1252"
    equals = {
        name
        for match in matches
        if match.chaos <= best.chaos
        for name in match.could_be_from_charset
    }
    return next((name for name in _COMMON if name in equals), best.encoding)


TITLE_CHARS = 300
VALUE_CHARS = 100_000
"""Limit of one metadata value; the description of a long job posting has a tenth of that."""

# Postgres refuses NUL in text and in jsonb, and UTF-8 cannot carry a lone surrogate.
_REFUSED = re.compile("[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_BLANK_LINES = re.compile(r"\n{3,}")
# NFC sorts the marks on a letter in quadratic time. No script puts this many on one
# (https://www.unicode.org/reports/tr15/#Stream_Safe_Text_Format).
_MARKS_ON_A_LETTER = 30
_FIRST_MARK = 0x300


def clean_text(text: str) -> str:
    """The text in NFC, without control characters, trailing spaces and runs of blank lines."""
    text = _REFUSED.sub("", _LINE_ENDS.sub("\n", text))
    text = "\n".join(map(str.rstrip, text.split("\n")))
    text = _BLANK_LINES.sub("\n\n", text).strip()
    if unicodedata.is_normalized("NFC", text):
        return text
    return unicodedata.normalize("NFC", _long_mark_runs().sub(_limit_marks, text)).strip()


def clean_line(text: str) -> str:
    """The text on one line, with single spaces."""
    return " ".join(clean_text(text).split())


def clean_title(title: str | None) -> str | None:
    """One trimmed line of at most 300 characters, or nothing."""
    return clean_line(title or "")[:TITLE_CHARS].strip() or None


def clean_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata with cleaned strings of bounded length, without empty entries."""
    cleaned = {key: _clean_value(value) for key, value in metadata.items()}
    return {key: value for key, value in cleaned.items() if value not in (None, "", [], {})}


@cache
def _long_mark_runs() -> re.Pattern[str]:
    """Long runs of combining marks, and of all rare letters: few ranges are fast to search."""
    marks = "".join(filter(_starts_with_mark, map(chr, range(_FIRST_MARK, 0x10000))))
    candidate = f"[{marks}\U00010000-\U0010ffff]"
    return re.compile(f"{candidate}{candidate}{{{_MARKS_ON_A_LETTER},}}")


def _limit_marks(run: re.Match[str]) -> str:
    kept, marks = [], 0
    for letter in run.group():
        marks = marks + 1 if _starts_with_mark(letter) else 0
        if marks <= _MARKS_ON_A_LETTER:
            kept.append(letter)
    return "".join(kept)


def _starts_with_mark(letter: str) -> bool:
    return bool(unicodedata.combining(unicodedata.normalize("NFD", letter)[0]))


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value[:VALUE_CHARS])
    if isinstance(value, list):
        return [_clean_value(item) for item in value]
    if isinstance(value, Mapping):
        return clean_metadata(value)
    return value
