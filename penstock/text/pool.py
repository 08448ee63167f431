"""Text extraction in child processes, so that a bad document harms no other."""

from collections.abc import Sequence

from penstock.documents import ExtractedText, Fault, RawDocument, StoredDocument
from penstock.isolation.job import Job
from penstock.isolation.pool import ChildPool
from penstock.text.extensions import Extensions

Outcome = ExtractedText | Fault

EXTRACTOR = "penstock.text.extractor:extract_text"
WARMUP = "penstock.text.warmup"


class TextPool:
    """Turns documents into text in children that others may share; safe from several threads."""

    def __init__(
        self,
        children: ChildPool,
        *,
        text_chars: int = 5_000_000,
        extractor: str = EXTRACTOR,
        extensions: Extensions | None = None,
    ) -> None:
        """`extractor` is an import path, `module:function`, for the children to find it by."""
        extensions = extensions or Extensions()
        self.fingerprint = extensions.fingerprint
        self._children = children
        self._job: Job[RawDocument | StoredDocument, ExtractedText] = Job(
            function="penstock.text.child:extract_within",
            doing="extracting its text",
            name_of=lambda document: document.name,
            size_of=_size,
            options={
                "extractor": extractor,
                "text_chars": text_chars,
                "extensions": extensions,
            },
        )

    def extract_many(self, documents: Sequence[RawDocument | StoredDocument]) -> list[Outcome]:
        """The text of each document, or what is wrong with it, in the order given."""
        return self._children.map(self._job, documents)


def _size(document: RawDocument | StoredDocument) -> int:
    return len(document.content) if isinstance(document, RawDocument) else document.size
