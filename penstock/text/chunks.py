"""How documents are grouped into messages for child processes."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.documents import RawDocument

CHUNK_DOCUMENTS = 8
CHUNK_BYTES = 512 * 1024
CHUNKS_PER_PROCESS = 3


@dataclass(frozen=True, slots=True)
class Chunk:
    """Documents that travel together, with their places in the batch."""

    indexes: tuple[int, ...]
    documents: tuple[RawDocument, ...]

    @property
    def alone(self) -> bool:
        return len(self.documents) == 1

    def split(self) -> list["Chunk"]:
        """Each document for itself, so that whatever goes wrong next has one culprit."""
        return [
            Chunk((index,), (document,))
            for index, document in zip(self.indexes, self.documents, strict=True)
        ]


def plan_chunks(documents: Sequence[tuple[int, RawDocument]], processes: int) -> list[Chunk]:
    """Chunks large enough to make a message cheap and small enough to keep all children busy."""
    most = max(1, min(CHUNK_DOCUMENTS, len(documents) // (processes * CHUNKS_PER_PROCESS)))
    chunks: list[Chunk] = []
    group: list[tuple[int, RawDocument]] = []
    size = 0
    for index, document in documents:
        if group and (len(group) == most or size + len(document.content) > CHUNK_BYTES):
            chunks.append(_chunk(group))
            group, size = [], 0
        group.append((index, document))
        size += len(document.content)
    return [*chunks, _chunk(group)] if group else chunks


def _chunk(group: list[tuple[int, RawDocument]]) -> Chunk:
    indexes, documents = zip(*group, strict=True)
    return Chunk(indexes, documents)
