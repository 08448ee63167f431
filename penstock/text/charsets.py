"""Bytes to characters: byte order mark, then what was declared, then UTF-8, then a guess."""

import codecs
import re
from email.message import Message

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_META = re.compile(rb"""<meta[^>]{0,500}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_META_WINDOW = 8192
_SAMPLE_BYTES = 32_768
# Browsers read these labels as windows-1252 (https://encoding.spec.whatwg.org/#names-and-labels).
_READ_AS_WINDOWS_1252 = frozenset({"ascii", "iso8859-1"})
# Short text fits many code pages equally well; these are the ones met in practice.
_COMMON = ("cp1252", "cp1251", "cp1250", "cp1253", "cp1254")


def decode_text(content: bytes, media_type: str | None = None, *, markup: bool = False) -> str:
    """The characters of `content`; bytes that fit no charset become U+FFFD."""
    if marked := charset_of_mark(content):
        return content.decode(marked, "replace")
    for label in (_declared_charset(media_type), _meta_charset(content) if markup else None):
        text = _decode_strictly(content, label)
        if text is not None:
            return text
    return _decode_undeclared(content)


def charset_of_mark(content: bytes) -> str | None:
    """The charset named by a byte order mark, if there is one."""
    return next((name for mark, name in _MARKS if content.startswith(mark)), None)


def _declared_charset(media_type: str | None) -> str | None:
    if not media_type or "charset" not in media_type.lower():
        return None
    header = Message()
    header["Content-Type"] = media_type
    return header.get_content_charset()


def _meta_charset(content: bytes) -> str | None:
    found = _META.search(content[:_META_WINDOW])
    label = found.group(1).decode("ascii") if found else None
    # A meta tag that could be read byte by byte is not in UTF-16, whatever it claims.
    return "utf-8" if label and label.lower().startswith("utf-16") else label


def _decode_strictly(content: bytes, label: str | None) -> str | None:
    try:
        name = codecs.lookup(label).name if label else ""
        if name in _READ_AS_WINDOWS_1252:
            name = "cp1252"
        return content.decode(name) if name else None
    except (LookupError, ValueError):
        return None


def _decode_undeclared(content: bytes) -> str:
    wide = wide_charset(content)
    text = None if wide else _decode_strictly(content, "utf-8")
    if text is not None:
        return text
    return content.decode(wide or _guess_charset(content), "replace")


def wide_charset(content: bytes) -> str | None:
    """UTF-16 without a mark shows as a NUL in nearly every second byte of Western text."""
    sample = content[: _SAMPLE_BYTES - _SAMPLE_BYTES % 2]
    half = len(sample) // 2
    if half < 2:
        return None
    if sample[1::2].count(0) > 0.7 * half and not sample[0::2].count(0):
        return "utf-16-le"
    if sample[0::2].count(0) > 0.7 * half and not sample[1::2].count(0):
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
