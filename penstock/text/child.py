"""What the text stage asks of a child process: one document in, its text out, cut to size."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.documents import ExtractedText, RawDocument, StoredDocument
from penstock.errors import DocumentFault, ErrorClass
from penstock.isolation.child import load_function
from penstock.text.extensions import Extensions, load_extensions

METADATA_CHARS = 1_000_000

# Quotes, commas and brackets, and the shortest values.
_MARKS = 4


def extract_within(
    document: RawDocument | StoredDocument,
    *,
    extractor: str,
    text_chars: int,
    extensions: Extensions,
) -> ExtractedText:
    """The text that the extractor at this import path finds, or its first `text_chars`.

    What does not fit into the metadata is left out of it.
    """
    load_extensions(extensions)
    raw = document if isinstance(document, RawDocument) else _read(document)
    extracted: ExtractedText = load_function(extractor)(raw)
    metadata = dict(_fitting(extracted.metadata, METADATA_CHARS))
    if len(extracted.text) <= text_chars and len(metadata) == len(extracted.metadata):
        return extracted
    metadata["truncated"] = True
    return replace(extracted, text=extracted.text[:text_chars], metadata=metadata)


def _fitting(metadata: Mapping[str, Any], most_chars: int) -> Iterator[tuple[str, Any]]:
    """The entries for which there is room, in their order."""
    left = most_chars
    for key, value in metadata.items():
        size = len(key) + _size(value)
        if size <= left:
            left -= size
            yield key, value


def _size(value: Any) -> int:
    """About how many characters the value takes where it is stored."""
    if isinstance(value, str):
        return len(value) + _MARKS
    if isinstance(value, Mapping):
        return _MARKS + sum(len(key) + _size(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return _MARKS + sum(map(_size, value))
    return _MARKS


def _read(document: StoredDocument) -> RawDocument:
    try:
        content = Path(document.path).read_bytes()
    except OSError as error:
        message = f"{document.name}: could not read raw bytes: {error.strerror or error}"
        raise DocumentFault(ErrorClass.UNAVAILABLE, message) from error
    return RawDocument(document.name, content, document.media_type, document.source)
