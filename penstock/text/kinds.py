"""What a document is, told by its bytes; its name and declared type only settle a draw."""

import json
import re
import zipfile
from io import BytesIO
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from penstock.documents import RawDocument
from penstock.text.charsets import charset_of_mark, wide_charset

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
OLE = "application/msword"
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
    (b"{\\rtf", "application/rtf"),
    (b"\x1f\x8b", "application/gzip"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\x7fELF", "application/x-executable"),
)
_SUFFIXES = {
    ".pdf": PDF,
    ".docx": DOCX,
    ".html": HTML,
    ".htm": HTML,
    ".xhtml": HTML,
    ".xml": XML,
    ".json": JSON,
    ".csv": CSV,
    ".md": MARKDOWN,
    ".markdown": MARKDOWN,
    ".rst": RST,
    ".txt": PLAIN,
}
_DECLARED = {
    "application/xhtml+xml": HTML,
    "text/xml": XML,
    "text/json": JSON,
    "text/x-markdown": MARKDOWN,
    "text/prs.fallenstein.rst": RST,
}
_ZIP_PARTS = (
    ("word/document.xml", DOCX),
    ("xl/workbook.xml", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    (
        "ppt/presentation.xml",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ),
)
_PAGE_START = re.compile(r"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<(!doctype\s+html|html)\b", re.S)
_PAGE_TAG = re.compile(r"<(html|head|body|!doctype html|title|meta)\b")
_ANY_TAG = re.compile(r"<(p|div|table|ul|ol|h[1-6]|article|section|main|br|span)\b[^>]*>")
_CONTROLS = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")


def detect_media_type(raw: RawDocument) -> str:
    """The media type of the bytes; `application/octet-stream` when they are no text we know."""
    hint = _hinted_type(raw)
    magic = _type_by_magic(raw.content)
    if magic == ZIP:
        return _type_inside_zip(raw.content, hint)
    if magic:
        return magic
    if _is_binary(raw.content):
        return _type_of_binary(raw.content, hint)
    return _type_of_text(raw, hint)


def _hinted_type(raw: RawDocument) -> str | None:
    path = urlsplit(raw.name).path if "://" in raw.name else raw.name
    by_name = _SUFFIXES.get(PurePosixPath(path).suffix.lower())
    declared = (raw.media_type or "").split(";")[0].strip().lower()
    declared = _DECLARED.get(declared, declared)
    # Servers send files they do not know as text/plain, so a telling name beats that.
    return declared if declared in _SUFFIXES.values() and declared != PLAIN else by_name


def _type_by_magic(content: bytes) -> str | None:
    head = content[:_HEAD_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n")
    found = next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)
    if found is None and head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return found or next((kind for magic, kind in _MAGIC if content.startswith(magic)), None)


def _type_inside_zip(content: bytes, hint: str | None) -> str:
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return DOCX if hint == DOCX else ZIP
    return next((kind for part, kind in _ZIP_PARTS if part in names), ZIP)


def _is_binary(content: bytes) -> bool:
    if charset_of_mark(content) or wide_charset(content):
        return False
    sample = content[:_HEAD_BYTES]
    # A stray control character or two does not turn a text into something else.
    return len(_CONTROLS.findall(sample)) > max(4, len(sample) / 50)


def _type_of_binary(content: bytes, hint: str | None) -> str:
    # PDF readers accept some rubbish before the header (ISO 32000-1, annex H.3.4.1).
    if b"%PDF-" in content[:1024]:
        return PDF
    return hint if hint in (PDF, DOCX) else BINARY


def _type_of_text(raw: RawDocument, hint: str | None) -> str:
    charset = charset_of_mark(raw.content) or wide_charset(raw.content) or "utf-8"
    head = raw.content[:_HEAD_BYTES].decode(charset, "ignore").lstrip("\ufeff \t\r\n").lower()
    if _PAGE_START.match(head):
        return HTML
    if head.startswith("<"):
        return _type_of_tags(head, hint)
    if head[:1] in ("{", "[") and (hint == JSON or _is_json(raw.content)):
        return JSON
    if b"%PDF-" in raw.content[:1024] and hint == PDF:
        return PDF
    return hint if hint in (CSV, MARKDOWN, RST, HTML) else PLAIN


def _type_of_tags(head: str, hint: str | None) -> str:
    if head.startswith("<svg"):
        return "image/svg+xml"
    if head.startswith("<?xml") or hint in (XML, MARKDOWN, RST, PLAIN):
        return XML if head.startswith("<?xml") else str(hint)
    if _PAGE_TAG.search(head) or _ANY_TAG.search(head) or hint == HTML:
        return HTML
    return XML if re.match(r"<[\w:.-]+[\s/>]", head) else PLAIN


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True
