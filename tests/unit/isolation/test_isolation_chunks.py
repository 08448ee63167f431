"""Chunks are big enough to be cheap and small enough to share out."""

from penstock.isolation.pool import CHUNK_BYTES, ChildTask, plan_chunks

TOGETHER = 20


def sizes_of(lengths: list[int], processes: int = 2) -> list[int]:
    inputs = [(i, b"x" * length) for i, length in enumerate(lengths)]
    job: ChildTask[bytes, bytes] = ChildTask(
        function="builtins:len", doing="", name_of=str, size_of=len, together=TOGETHER
    )
    chunks = plan_chunks(job, inputs, processes)
    assert [i for chunk in chunks for i, _ in chunk] == list(range(len(lengths)))
    return [len(chunk) for chunk in chunks]


def test_many_small_inputs_travel_in_full_chunks() -> None:
    assert set(sizes_of([10] * 160)) == {TOGETHER}


def test_a_few_inputs_are_spread_over_all_children() -> None:
    assert sizes_of([10] * 4) == [1, 1, 1, 1]
    assert len(sizes_of([10] * 24)) >= 6


def test_a_large_input_travels_alone() -> None:
    assert sizes_of([10] * 32 + [2 * CHUNK_BYTES] + [10] * 32).count(1) == 1


def test_no_inputs_make_no_chunks() -> None:
    assert sizes_of([]) == []
