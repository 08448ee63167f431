"""The three computations of the path, as functions of plain values.

They are pure: the same keys give the same results. So whoever runs the path may wrap them (the
flows wrap them in cached Prefect tasks) without changing what is written, or when.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from penstock.crawl.localfile import check_file
from penstock.crawl.rawstore import RawStore
from penstock.documents import (
    ExtractedText,
    Extraction,
    ExtractionRequest,
    ExtractionSkipped,
    Fault,
    RawDocument,
    StoredDocument,
)
from penstock.embed.embedder import Embedder
from penstock.errors import DocumentFault
from penstock.llm.extractor import Extractor
from penstock.text.pool import TextPool

TextResult = ExtractedText | Fault
ExtractionResult = Extraction | ExtractionSkipped | Fault


@dataclass(frozen=True, slots=True)
class RawReference:
    """Where a document's bytes lie, and what its source said about them."""

    raw_key: str | None
    name: str
    size: int
    media_type: str | None
    source: str | None = None
    path: Path | None = None
    """A user's own file, read where it lies; then there is no key."""


class Steps(Protocol):
    """Each step takes one key and one input a document, and answers in the same order."""

    def parse(self, keys: Sequence[str], documents: Sequence[RawReference]) -> list[TextResult]: ...

    def extract(
        self, keys: Sequence[str], requests: Sequence[ExtractionRequest]
    ) -> list[ExtractionResult]: ...

    def embed(self, keys: Sequence[str], texts: Sequence[str]) -> list[bytes]: ...


@dataclass(frozen=True, slots=True)
class DirectSteps:
    """The computations themselves."""

    raw: RawStore
    pool: TextPool
    extractor: Extractor
    embedder: Embedder
    max_bytes: int

    def parse(self, keys: Sequence[str], documents: Sequence[RawReference]) -> list[TextResult]:
        del keys
        loaded = [self._load(document) for document in documents]
        found = [document for document in loaded if not isinstance(document, Fault)]
        parsed = iter(self.pool.extract_many(found))
        return [document if isinstance(document, Fault) else next(parsed) for document in loaded]

    def extract(
        self, keys: Sequence[str], requests: Sequence[ExtractionRequest]
    ) -> list[ExtractionResult]:
        del keys
        return self.extractor.extract(requests)

    def embed(self, keys: Sequence[str], texts: Sequence[str]) -> list[bytes]:
        del keys
        return self.embedder.embed(texts)

    def _load(self, document: RawReference) -> RawDocument | StoredDocument | Fault:
        try:
            if document.path is not None:
                return _stored(document, document.path, check_file(document.path, self.max_bytes))
            key = str(document.raw_key)
            path = self.raw.locate(key)
            if path is not None:
                return _stored(document, path, document.size)
            content = self.raw.get(key)
        except DocumentFault as error:
            return Fault.of(error)
        return RawDocument(document.name, content, document.media_type, document.source)


def _stored(document: RawReference, path: Path, size: int) -> StoredDocument:
    """Whoever parses it reads it: the bytes need not travel through a pipe."""
    return StoredDocument(
        document.name, str(path.absolute()), size, document.media_type, document.source
    )
