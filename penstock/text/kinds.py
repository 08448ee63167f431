"""What a document is, told by its bytes; its name and declared type only settle a draw."""

import json
import re
import zlib
from collections.abc import Iterable
from pathlib import PurePosixPath
from zipfile import BadZipFile

from penstock.documents import RawDocument
from penstock.text.archives import ArchiveTooLarge, open_archive, plain_name, read_entry
from penstock.text.charsets import charset_of_mark, wide_charset

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
OLE = "application/msword"
RTF = "application/rtf"
ZIP = "application/zip"
HTML = "text/html"
XML = "application/xml"
JSON = "application/json"
CSV = "text/csv"
MARKDOWN = "text/markdown"
RST = "text/x-rst"
PLAIN = "text/plain"
BINARY = "application/octet-stream"

_HEAD_BYTES = 4096
_TAIL_BYTES = 1024
# Types are also told where nothing limits memory, so only small JSON is parsed to be sure.
_PARSED_BYTES = 256 * 1024
_MAGIC = (
    (b"%PDF-", PDF),
    (b"PK\x03\x04", ZIP),
    (b"PK\x05\x06", ZIP),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", OLE),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"\x00\x00\x01\x00", "image/x-icon"),
    (b"{\\rtf", RTF),
    (b"\x1f\x8b", "application/gzip"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\x7fELF", "application/x-executable"),
)
_SUFFIXES = {
    ".pdf": PDF,
    ".docx": DOCX,
    ".docm": DOCX,
    ".dotx": DOCX,
    ".html": HTML,
    ".htm": HTML,
    ".xhtml": HTML,
    ".xml": XML,
    ".rss": XML,
    ".atom": XML,
    ".json": JSON,
    ".jsonl": JSON,
    ".ndjson": JSON,
    ".csv": CSV,
    ".tsv": CSV,
    ".tab": CSV,
    ".md": MARKDOWN,
    ".markdown": MARKDOWN,
    ".rst": RST,
    ".txt": PLAIN,
}
_DECLARED = {
    "application/xhtml+xml": HTML,
    "text/xml": XML,
    "text/json": JSON,
    "application/x-ndjson": JSON,
    "application/jsonl": JSON,
    "application/x-pdf": PDF,
    "application/csv": CSV,
    "text/tab-separated-values": CSV,
    "text/x-markdown": MARKDOWN,
    "text/prs.fallenstein.rst": RST,
}
_ZIP_FOLDERS = (("word/", DOCX), ("xl/", XLSX), ("ppt/", PPTX))
_MEDIA_TYPE = re.compile(rb"[a-z]+/[\w.+-]{1,100}")
_PAGE_START = re.compile(
    r"\s*(<\?xml[^>]*>\s*)?(<!--(?:(?!-->).)*-->\s*)*<(!doctype\s+html|html)\b", re.DOTALL
)
_PAGE_TAG = re.compile(r"<(html|head|body|!doctype html|title|meta)\b")
_ANY_TAG = re.compile(r"<(p|div|table|ul|ol|h[1-6]|article|section|main|br|span)\b[^>]*>")
_TAG = re.compile(r"<[a-z!/?]")
_PDF_SYNTAX = re.compile(rb"\d \d+ obj\b|\bendobj\b|\bstartxref\s+\d")
_JSON_OBJECT = re.compile(r'\{\s*("[^"\\\n]{0,200}"\s*:|\}\s*$)')
_JSON_LIST = re.compile(r'\[\s*[\[{"\d-]')
_CONTROLS = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")


def detect_media_type(raw: RawDocument) -> str:
    """The media type of the bytes; `application/octet-stream` when they are no text we know."""
    hints = _hinted_types(raw)
    magic = _type_by_magic(raw.content)
    if magic == ZIP:
        return _type_inside_zip(raw.content, hints)
    if magic:
        return magic
    if _is_binary(raw.content) and not _is_text_with_holes(raw.content, hints):
        return _type_of_binary(raw.content, hints)
    return _type_of_text(raw.content, hints)


def _hinted_types(raw: RawDocument) -> tuple[str, ...]:
    """What the declared type and the name say, the better witness first."""
    path = re.split("[?#]", raw.name, maxsplit=1)[0] if "://" in raw.name else raw.name
    named = _SUFFIXES.get(PurePosixPath(path).suffix.lower())
    declared = _declared_type((raw.media_type or "").split(";")[0].strip().lower())
    # Servers send files they do not know as text/plain, so a telling name beats that.
    ordered = (named, declared) if declared == PLAIN else (declared, named)
    return tuple(kind for kind in ordered if kind)


def _declared_type(declared: str) -> str | None:
    known = _DECLARED.get(declared, declared)
    if known in _SUFFIXES.values():
        return known
    return {"+xml": XML, "+json": JSON}.get(known[known.rfind("+") :] if "+" in known else "")


def _type_by_magic(content: bytes) -> str | None:
    head = content[:_HEAD_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n")
    found = next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)
    if found is None and head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return found or next((kind for magic, kind in _MAGIC if content.startswith(magic)), None)


def _type_inside_zip(content: bytes, hints: tuple[str, ...]) -> str:
    try:
        with open_archive(content) as archive:
            entries = {plain_name(entry): entry for entry in archive.infolist()}
            if "mimetype" in entries:  # EPUB and OpenDocument say what they are
                declared = read_entry(archive, entries["mimetype"], _HEAD_BYTES).strip()
                return declared.decode() if _MEDIA_TYPE.fullmatch(declared) else ZIP
    except (ArchiveTooLarge, BadZipFile, OSError, ValueError, RuntimeError, EOFError, zlib.error):
        return DOCX if DOCX in hints else ZIP
    return next((kind for folder, kind in _ZIP_FOLDERS if _any_in(folder, entries)), ZIP)


def _any_in(folder: str, names: Iterable[str]) -> bool:
    return any(name.startswith(folder) for name in names)


def _is_binary(content: bytes) -> bool:
    if charset_of_mark(content) or wide_charset(content):
        return False
    return _has_many_controls(content[:_HEAD_BYTES])


def _has_many_controls(sample: bytes) -> bool:
    # A stray control character or two does not turn a text into something else.
    return len(_CONTROLS.findall(sample)) > max(4, len(sample) / 50)


def _is_text_with_holes(content: bytes, hints: tuple[str, ...]) -> bool:
    """A crash can leave NULs where part of a text should be; the rest is still readable."""
    rest = content[:_HEAD_BYTES].replace(b"\x00", b"")
    hinted = any(hint not in (PDF, DOCX) for hint in hints)
    return hinted and 2 * len(rest) > len(content[:_HEAD_BYTES]) and not _has_many_controls(rest)


def _type_of_binary(content: bytes, hints: tuple[str, ...]) -> str:
    if _has_pdf_marks(content):
        return PDF
    claimed = next((hint for hint in hints if hint in (PDF, DOCX)), None)
    if claimed is None and not content.strip(b"\x00"):
        return PLAIN  # what a crash leaves of a file: not one character, and not another format
    return claimed or BINARY


def _has_pdf_marks(content: bytes) -> bool:
    # PDF readers accept some rubbish before the header (ISO 32000-1, annex H.3.4.1), and objects
    # tell of a PDF whose header was damaged.
    return b"%PDF-" in content[:1024] or bool(_PDF_SYNTAX.search(content[:_HEAD_BYTES]))


def _type_of_text(content: bytes, hints: tuple[str, ...]) -> str:
    head = _opening(content)
    if _PAGE_START.match(head) or _is_page_after_rubbish(head, content):
        return HTML
    if PDF in hints and _has_pdf_marks(content):
        return PDF
    if head.startswith("<"):
        return _type_of_tags(head, hints)
    if head[:1] in ("{", "[") and (JSON in hints or _is_json(head, content)):
        return JSON
    readable = [hint for hint in hints if hint in (CSV, MARKDOWN, RST, HTML, PLAIN)]
    # Servers call what they do not know HTML as well; without a tag, a telling name beats that.
    if len(readable) > 1 and readable[0] == HTML and not _TAG.search(head):
        return readable[1]
    return readable[0] if readable else PLAIN


def _opening(content: bytes) -> str:
    charset = charset_of_mark(content) or wide_charset(content) or "utf-8"
    return content[:_HEAD_BYTES].decode(charset, "ignore").lstrip("\ufeff \t\r\n").lower()


def _is_page_after_rubbish(head: str, content: bytes) -> bool:
    """A page below a warning its server printed; a text on HTML does not end like one."""
    return bool(_PAGE_TAG.search(head)) and content[-_TAIL_BYTES:].rstrip().endswith(b"</html>")


def _type_of_tags(head: str, hints: tuple[str, ...]) -> str:
    if head.startswith("<svg"):
        return "image/svg+xml"
    if head.startswith("<?xml"):
        return XML
    if hints and hints[0] in (XML, CSV, MARKDOWN, RST, PLAIN):
        return hints[0]
    if _PAGE_TAG.search(head) or _ANY_TAG.search(head) or HTML in hints:
        return HTML
    return XML if re.match(r"<[\w:.-]+[\s/>]", head) else PLAIN


def _is_json(head: str, content: bytes) -> bool:
    if len(content) > _PARSED_BYTES:
        closed = content[-_TAIL_BYTES:].rstrip().endswith((b"]", b"}"))
        return closed and bool(_JSON_OBJECT.match(head) or _JSON_LIST.match(head))
    if _JSON_OBJECT.match(head):
        return True
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True
