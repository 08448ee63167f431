"""Chunks are big enough to be cheap and small enough to share out."""

from penstock.text.chunks import CHUNK_BYTES, CHUNK_DOCUMENTS, plan_chunks
from text.factories import make_raw


def sizes_of(lengths: list[int], processes: int = 2) -> list[int]:
    documents = [(i, make_raw(b"x" * length)) for i, length in enumerate(lengths)]
    chunks = plan_chunks(documents, processes)
    assert [i for chunk in chunks for i in chunk.indexes] == list(range(len(lengths)))
    return [len(chunk.documents) for chunk in chunks]


def test_many_small_documents_travel_in_full_chunks() -> None:
    assert set(sizes_of([10] * 160)) == {CHUNK_DOCUMENTS}


def test_a_few_documents_are_spread_over_all_children() -> None:
    assert sizes_of([10] * 4) == [1, 1, 1, 1]
    assert len(sizes_of([10] * 24)) >= 6


def test_a_large_document_travels_alone() -> None:
    assert sizes_of([10] * 32 + [2 * CHUNK_BYTES] + [10] * 32).count(1) == 1


def test_no_documents_make_no_chunks() -> None:
    assert sizes_of([]) == []
