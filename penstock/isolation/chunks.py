"""How inputs are grouped into messages for child processes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from penstock.isolation.job import Input

CHUNK_INPUTS = 16
CHUNK_BYTES = 4 * 1024 * 1024
CHUNKS_PER_PROCESS = 3


@dataclass(frozen=True, slots=True)
class Chunk(Generic[Input]):
    """Inputs that travel together, with their places in the batch."""

    indexes: tuple[int, ...]
    inputs: tuple[Input, ...]

    @property
    def alone(self) -> bool:
        return len(self.inputs) == 1

    def split(self) -> "list[Chunk[Input]]":
        """Each input for itself, so that whatever goes wrong next has one culprit."""
        return [
            Chunk((index,), (one,)) for index, one in zip(self.indexes, self.inputs, strict=True)
        ]


def plan_chunks(
    inputs: Sequence[tuple[int, Input]], size_of: Callable[[Input], int], processes: int
) -> list[Chunk[Input]]:
    """Chunks large enough to make a message cheap and small enough to keep all children busy."""
    most = max(1, min(CHUNK_INPUTS, len(inputs) // (processes * CHUNKS_PER_PROCESS)))
    chunks: list[Chunk[Input]] = []
    group: list[tuple[int, Input]] = []
    total = 0
    for index, one in inputs:
        size = size_of(one)
        if group and (len(group) == most or total + size > CHUNK_BYTES):
            chunks.append(_chunk(group))
            group, total = [], 0
        group.append((index, one))
        total += size
    return [*chunks, _chunk(group)] if group else chunks


def _chunk(group: list[tuple[int, Input]]) -> Chunk[Input]:
    indexes, inputs = zip(*group, strict=True)
    return Chunk(indexes, inputs)
