"""What the text stage asks of a child process: one document in, its text out, cut to size."""

from dataclasses import replace

from penstock.documents import ExtractedText, RawDocument
from penstock.isolation.child import load_function


def extract_within(document: RawDocument, *, extractor: str, text_chars: int) -> ExtractedText:
    """The text that the extractor at this import path finds, or its first `text_chars`."""
    extracted: ExtractedText = load_function(extractor)(document)
    if len(extracted.text) <= text_chars:
        return extracted
    metadata = {**extracted.metadata, "truncated": True}
    return replace(extracted, text=extracted.text[:text_chars], metadata=metadata)
