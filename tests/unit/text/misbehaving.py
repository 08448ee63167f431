"""An extractor that does what the document says, good or bad, for children to import by path."""

from penstock.documents import ExtractedText, RawDocument
from tests.unit.isolation.misbehaving import obey

PATH = f"{__name__}:extract_text"


def extract_text(raw: RawDocument) -> ExtractedText:
    return ExtractedText(str(obey(raw.content.decode())))
