"""What the text stage asks of a child process: one document in, its text out, cut to size."""

from dataclasses import replace
from pathlib import Path

from penstock.documents import ExtractedText, RawDocument, StoredDocument
from penstock.errors import DocumentFault, ErrorClass
from penstock.isolation.child import load_function
from penstock.text.extensions import Extensions, load_extensions


def extract_within(
    document: RawDocument | StoredDocument,
    *,
    extractor: str,
    text_chars: int,
    extensions: Extensions,
) -> ExtractedText:
    """The text that the extractor at this import path finds, or its first `text_chars`."""
    load_extensions(extensions)
    raw = document if isinstance(document, RawDocument) else _read(document)
    extracted: ExtractedText = load_function(extractor)(raw)
    if len(extracted.text) <= text_chars:
        return extracted
    metadata = {**extracted.metadata, "truncated": True}
    return replace(extracted, text=extracted.text[:text_chars], metadata=metadata)


def _read(document: StoredDocument) -> RawDocument:
    try:
        content = Path(document.path).read_bytes()
    except OSError as error:
        message = f"{document.name}: could not read raw bytes: {error.strerror or error}"
        raise DocumentFault(ErrorClass.UNAVAILABLE, message) from error
    return RawDocument(document.name, content, document.media_type, document.source)
