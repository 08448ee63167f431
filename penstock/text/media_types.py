"""Detects the media type of a document from its bytes; name and declared type break ties."""

import json
import re
import struct
import zlib
from io import BytesIO
from pathlib import PurePosixPath
from zipfile import BadZipFile, ZipFile, ZipInfo

from penstock.documents import RawDocument
from penstock.text.charsets import certain_charset

# A Word document has some dozens of parts; the directory of a million takes half a gigabyte.
DIRECTORY_BYTES = 4 * 1024**2

_END_MARK = b"PK\x05\x06"
_END_BYTES = 22
_LONGEST_COMMENT = 65_535
_BROKEN = (OSError, ValueError, NotImplementedError, struct.error, IndexError, OverflowError)


class ArchiveTooLarge(Exception):
    """The archive holds more than may be unpacked."""


def open_archive(content: bytes) -> ZipFile:
    """The archive, its directory read; BadZipFile when it is broken in any way."""
    if _directory_bytes(content) > DIRECTORY_BYTES:
        raise ArchiveTooLarge(f"its directory takes more than {DIRECTORY_BYTES} bytes")
    try:
        return ZipFile(BytesIO(content))
    except _BROKEN as error:
        raise BadZipFile(str(error)) from error


def read_entry(archive: ZipFile, entry: ZipInfo, most_bytes: int) -> bytes:
    """The unpacked entry. Its declared size may be wrong, so the reading itself is bounded."""
    with archive.open(entry) as packed:
        unpacked = packed.read(most_bytes + 1)
    if len(unpacked) > most_bytes:
        raise ArchiveTooLarge(f"{entry.filename} unpacks to more than {most_bytes} bytes")
    return unpacked


def entry_name(entry: ZipInfo) -> str:
    """The entry's name, normalised: some programs write backslashes or another case."""
    return entry.filename.replace("\\", "/").lstrip("/").lower()


def _directory_bytes(content: bytes) -> int:
    start = content.rfind(_END_MARK, max(0, len(content) - _END_BYTES - _LONGEST_COMMENT))
    if start < 0 or start + _END_BYTES > len(content):
        return 0
    return int.from_bytes(content[start + 12 : start + 16], "little")


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
# Types are also detected in the main process, without a memory limit: only small JSON is parsed.
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
    **{".pdf": PDF, ".txt": PLAIN, ".rst": RST},
    **dict.fromkeys((".docx", ".docm", ".dotx"), DOCX),
    **dict.fromkeys((".html", ".htm", ".xhtml"), HTML),
    **dict.fromkeys((".xml", ".rss", ".atom"), XML),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), JSON),
    **dict.fromkeys((".csv", ".tsv", ".tab"), CSV),
    **dict.fromkeys((".md", ".markdown"), MARKDOWN),
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
    "+xml": XML,
    "+json": JSON,
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
    """The media type of the bytes; `application/octet-stream` when it is not a known one."""
    hints = _hinted_types(raw)
    magic = _type_by_magic(raw.content)
    if magic == ZIP:
        return _type_inside_zip(raw.content, hints)
    if magic:
        return magic
    charset = certain_charset(raw.content)
    binary = not charset and _has_many_controls(raw.content[:_HEAD_BYTES])
    if binary and not _is_text_with_nuls(raw.content, hints):
        return _type_of_binary(raw.content, hints)
    return _type_of_text(raw.content, charset or "utf-8", hints)


def _hinted_types(raw: RawDocument) -> tuple[str, ...]:
    """The types of declaration and name, the more reliable one first."""
    path = re.split("[?#]", raw.name, maxsplit=1)[0] if "://" in raw.name else raw.name
    named = _SUFFIXES.get(PurePosixPath(path).suffix.lower())
    stated = (raw.media_type or "").split(";")[0].strip().lower()
    declared = stated if stated in _SUFFIXES.values() else _DECLARED.get(stated)
    declared = declared or _DECLARED.get(stated[stated.rfind("+") :])
    # Servers send unknown files as text/plain, so a name with a known suffix goes first.
    ordered = (named, declared) if declared == PLAIN else (declared, named)
    return tuple(kind for kind in ordered if kind)


def _type_by_magic(content: bytes) -> str | None:
    head = content[:_HEAD_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n")
    found = next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)
    if found is None and head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return found


def _type_inside_zip(content: bytes, hints: tuple[str, ...]) -> str:
    try:
        with open_archive(content) as archive:
            entries = {entry_name(entry): entry for entry in archive.infolist()}
            if "mimetype" in entries:  # EPUB and OpenDocument
                declared = read_entry(archive, entries["mimetype"], _HEAD_BYTES).strip()
                return declared.decode() if _MEDIA_TYPE.fullmatch(declared) else ZIP
    except (ArchiveTooLarge, BadZipFile, OSError, ValueError, RuntimeError, EOFError, zlib.error):
        return DOCX if DOCX in hints else ZIP
    kinds = (
        kind for folder, kind in _ZIP_FOLDERS if any(name.startswith(folder) for name in entries)
    )
    return next(kinds, ZIP)


def _has_many_controls(sample: bytes) -> bool:
    # A few stray control characters do not make a text binary.
    return len(_CONTROLS.findall(sample)) > max(4, len(sample) / 50)


def _is_text_with_nuls(content: bytes, hints: tuple[str, ...]) -> bool:
    """A crash can leave NULs where part of a text should be; the rest is still readable."""
    rest = content[:_HEAD_BYTES].replace(b"\x00", b"")
    hinted = any(hint not in (PDF, DOCX) for hint in hints)
    return hinted and 2 * len(rest) > len(content[:_HEAD_BYTES]) and not _has_many_controls(rest)


def _type_of_binary(content: bytes, hints: tuple[str, ...]) -> str:
    if _has_pdf_marks(content):
        return PDF
    claimed = next((hint for hint in hints if hint in (PDF, DOCX)), None)
    if claimed is None and not content.strip(b"\x00"):
        return PLAIN  # nothing but NULs, as a crash leaves a file: empty rather than binary
    return claimed or BINARY


def _has_pdf_marks(content: bytes) -> bool:
    # PDF readers accept other bytes before the header (ISO 32000-1, annex H.3.4.1); a PDF with a
    # damaged header is recognised by its objects.
    return b"%PDF-" in content[:1024] or bool(_PDF_SYNTAX.search(content[:_HEAD_BYTES]))


def _type_of_text(content: bytes, charset: str, hints: tuple[str, ...]) -> str:
    head = content[:_HEAD_BYTES].decode(charset, "ignore").lstrip("\ufeff \t\r\n").lower()
    # A page after a warning that its server printed; a text about HTML does not end like one.
    ends_as_page = content[-_TAIL_BYTES:].rstrip().endswith(b"</html>")
    if _PAGE_START.match(head) or (ends_as_page and _PAGE_TAG.search(head)):
        return HTML
    if PDF in hints and _has_pdf_marks(content):
        return PDF
    if head.startswith("<"):
        return _type_of_tags(head, hints)
    if head[:1] in ("{", "[") and (JSON in hints or _is_json(head, content)):
        return JSON
    readable = [hint for hint in hints if hint in (CSV, MARKDOWN, RST, HTML, PLAIN)]
    # Servers declare unknown files as HTML, too; without a tag, the name goes first.
    if len(readable) > 1 and readable[0] == HTML and not _TAG.search(head):
        return readable[1]
    return readable[0] if readable else PLAIN


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
