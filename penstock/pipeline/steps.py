"""The three computations of the pipeline as functions of plain values: parse, extract, embed.

They are pure: the same keys give the same results, so flows can wrap them in cached Prefect tasks.
"""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from penstock.crawl.fetch import PayloadReader
from penstock.crawl.files import check_file, extension_for
from penstock.crawl.rawstore import PAYLOADS, RawStore
from penstock.documents import (
    ExtractedText,
    Extraction,
    ExtractionRequest,
    ExtractionSkipped,
    Fault,
    RawDocument,
    RawReference,
    StoredDocument,
)
from penstock.embed.embedder import Embedder
from penstock.errors import DocumentFault
from penstock.llm.prompts import Extractor
from penstock.queue.items import WorkItem
from penstock.text.extract import TextPool

TextResult = ExtractedText | Fault
ExtractionResult = Extraction | ExtractionSkipped | Fault


class Steps(Protocol):
    """Each step takes a key and an input for every document, and answers in the same order."""

    def parse(self, keys: Sequence[str], documents: Sequence[RawReference]) -> list[TextResult]: ...

    def extract(
        self, keys: Sequence[str], requests: Sequence[ExtractionRequest], reused: int = 0
    ) -> list[ExtractionResult]:
        """`reused`: how many documents of the batch need no answer, since the store holds one."""
        ...

    def embed(self, keys: Sequence[str], texts: Sequence[str], reused: int = 0) -> list[bytes]:
        """`reused`: how many documents of the batch have the vector of this very text."""
        ...


@dataclass(frozen=True, slots=True)
class DirectSteps:
    """The computations themselves."""

    raw: RawStore
    pool: TextPool
    extractor: Extractor
    embedder: Embedder
    max_bytes: int

    def parse(
        self, keys: Sequence[str], documents: Sequence[RawReference | RawDocument]
    ) -> list[TextResult]:
        del keys
        loaded = [self._load(document) for document in documents]
        found = [document for document in loaded if not isinstance(document, Fault)]
        parsed = iter(self.pool.extract_many(found))
        return [document if isinstance(document, Fault) else next(parsed) for document in loaded]

    def extract(
        self, keys: Sequence[str], requests: Sequence[ExtractionRequest], reused: int = 0
    ) -> list[ExtractionResult]:
        del keys, reused
        return self.extractor.extract(requests)

    def embed(self, keys: Sequence[str], texts: Sequence[str], reused: int = 0) -> list[bytes]:
        del keys, reused
        return self.embedder.embed(texts)

    def _load(self, document: RawReference | RawDocument) -> RawDocument | StoredDocument | Fault:
        if isinstance(document, RawDocument):
            return document
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
    """The child process reads it itself: the bytes need not travel through a pipe."""
    return StoredDocument(
        document.name, str(path.absolute()), size, document.media_type, document.source
    )


@dataclass(frozen=True, slots=True)
class StoredPayloads:
    """Fetches the bytes that items refer to, several at a time, and keeps them in the raw store."""

    reader: Callable[[], PayloadReader]
    raw: Callable[[], RawStore]
    threads: Callable[[], Executor]
    """Each is built for the first reference: most workers never meet one."""

    def fetch(
        self, items: Sequence[WorkItem]
    ) -> tuple[list[WorkItem], list[tuple[WorkItem, Fault]]]:
        """The items whose bytes are there, and those whose bytes could not be fetched."""
        named = [item for item in items if item.payload.payload_ref is not None]
        if not named:
            return [*items], []
        stored = self.threads().map(self._store, named)
        fetched = {item.id: one for item, one in zip(named, stored, strict=True)}
        results = [(item, fetched.get(item.id, item)) for item in items]
        there = [result for _, result in results if isinstance(result, WorkItem)]
        return there, [(item, fault) for item, fault in results if isinstance(fault, Fault)]

    def _store(self, item: WorkItem) -> WorkItem | Fault:
        reference = str(item.payload.payload_ref)
        try:
            got = self.reader().read(reference, item.tenant_id)
            extension = extension_for(reference, got.media_type)
            digest = hashlib.sha256(got.content).hexdigest()
            key = self.raw().put(
                item.tenant_id, PAYLOADS, item.node_id, got.content, extension, digest
            )
        except DocumentFault as error:
            return Fault.of(error)
        stored = replace(
            item.payload,
            raw_key=key,
            size=len(got.content),
            media_type=got.media_type,
            content_hash=digest,
        )
        return replace(item, payload=stored)
