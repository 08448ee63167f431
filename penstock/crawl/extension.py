"""The file extension under which a document's raw bytes are kept."""

from pathlib import PurePosixPath
from urllib.parse import unquote

_BY_MEDIA_TYPE = {
    "application/json": "json",
    "application/ld+json": "json",
    "application/msword": "doc",
    "application/pdf": "pdf",
    "application/rtf": "rtf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/xhtml+xml": "html",
    "application/xml": "xml",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "text/xml": "xml",
}
_MAX_CHARACTERS = 8


def extension_for(name: str, media_type: str | None) -> str:
    """By the declared type where that says something, else by the name; `bin` when neither does.

    The type comes first because pages are often called `view.php` or nothing at all.
    """
    declared = (media_type or "").partition(";")[0].strip().lower()
    known = _BY_MEDIA_TYPE.get(declared)
    return known or _suffix(name) or ("txt" if declared == "text/plain" else "bin")


def _suffix(name: str) -> str | None:
    suffix = (
        PurePosixPath(_path_of_url(name) if "://" in name else name)
        .suffix.removeprefix(".")
        .lower()
    )
    plain = suffix.isascii() and suffix.isalnum() and len(suffix) <= _MAX_CHARACTERS
    return suffix if suffix and plain else None


def _path_of_url(url: str) -> str:
    address = url.partition("#")[0].partition("?")[0]
    return unquote(address.partition("://")[2].partition("/")[2])
