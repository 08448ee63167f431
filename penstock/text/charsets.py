"""Bytes to characters: byte order mark, then what was declared, then UTF-8, then a guess."""

import codecs
import re

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_HEADER = re.compile(r"""charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.ASCII | re.IGNORECASE)
_META = re.compile(rb"""charset\s*=\s*["']?\s*([\w.:-]{1,40})""")
_XML = re.compile(rb"""\s*<\?xml[^>]{0,200}\sencoding\s*=\s*["']([\w.:-]{1,40})""")
_META_WINDOW = 8192
_SAMPLE_BYTES = 32_768
# Browsers read these labels as the larger charset that Windows made of each
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
# Python can decode these, but no page is in them; some take quadratic time on bytes made for it.
_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape", "utf-7"})
# A stray byte or two, or a character cut in half, does not make a declaration wrong.
_BROKEN_SHARE = 0.001
# Short text fits many code pages equally well; these are the ones met in practice.
_COMMON = ("cp1252", "cp1251", "cp1250", "cp1253", "cp1254")


def decode_text(content: bytes, media_type: str | None = None, *, markup: bool = False) -> str:
    """The characters of `content`; bytes that fit no charset become U+FFFD."""
    # A NUL in every second byte is as good as a mark: in any other charset it would be no text.
    if certain := charset_of_mark(content) or wide_charset(content):
        return content.decode(certain, "replace")
    declared = _declared_charset(media_type), _markup_charset(content) if markup else None
    labels = list(filter(None, map(_python_name, declared)))
    for name in labels:
        text = _decode_strictly(content, name)
        if text is not None:
            return text
    text = _decode_strictly(content, "utf-8")
    return text if text is not None else _decode_broken(content, labels)


def charset_of_mark(content: bytes) -> str | None:
    """The charset named by a byte order mark, if there is one."""
    return next((name for mark, name in _MARKS if content.startswith(mark)), None)


def _declared_charset(media_type: str | None) -> str | None:
    found = _HEADER.search(media_type or "")
    return found.group(1).lower() if found else None


def _markup_charset(content: bytes) -> str | None:
    """What the page says of itself, in a meta tag or else in an XML declaration."""
    head = content[:_META_WINDOW].lower()
    in_meta = (found for found in _META.finditer(head) if _is_in_meta(head, found.start()))
    found = next(in_meta, None) or _XML.match(head)
    label = found.group(1).decode("ascii") if found else None
    # What could be read byte by byte is not in UTF-16, whatever it claims.
    return "utf-8" if label and label.startswith("utf-16") else label


def _is_in_meta(head: bytes, place: int) -> bool:
    tag = head.rfind(b"<", 0, place)
    return tag >= 0 and head.startswith(b"<meta", tag) and b">" not in head[tag:place]


def _python_name(label: str | None) -> str | None:
    try:
        name = codecs.lookup(_UNKNOWN_TO_PYTHON.get(label, label)).name if label else None
    except (LookupError, ValueError):
        return None
    return None if name is None or name in _NO_CHARSETS else _READ_AS.get(name, name)


def _decode_strictly(content: bytes, name: str) -> str | None:
    try:
        return content.decode(name)
    except (LookupError, ValueError):
        return None  # a LookupError for names like `rot13`, which stand for no charset


def _decode_broken(content: bytes, declared: list[str]) -> str:
    """Bytes that fit neither UTF-8 nor what was declared, by the charset that spoils least."""
    if _is_mostly_utf8(content):
        return content.decode("utf-8", "replace")
    for name in declared:
        text = "" if name == "utf-8" else content.decode(name, "replace")
        if text.count("\ufffd") < _BROKEN_SHARE * len(text):
            return text
    return content.decode(_guess_charset(content), "replace")


def _is_mostly_utf8(content: bytes) -> bool:
    text = content.decode("utf-8", "replace")
    # Bytes saved by characters of several bytes: single-byte charsets hardly ever look like that.
    return text.count("\ufffd") < (len(content) - len(text)) / 4


def wide_charset(content: bytes) -> str | None:
    """UTF-16 without a mark shows as a NUL in nearly every second byte of Western text."""
    sample = content[: _SAMPLE_BYTES - _SAMPLE_BYTES % 2]
    half = len(sample) // 2
    if half < 2:
        return None
    if sample[1::2].count(0) > 0.5 * half and not sample[0::2].count(0):
        return "utf-16-le"
    if sample[0::2].count(0) > 0.5 * half and not sample[1::2].count(0):
        return "utf-16-be"
    return None


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
