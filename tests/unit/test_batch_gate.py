"""Batches side by side, and one that is alone in its process."""

import threading
from concurrent.futures import ThreadPoolExecutor

from penstock.pipeline.gate import BatchGate

SECONDS = 30


def test_one_that_is_alone_waits_for_the_others_and_keeps_new_ones_out() -> None:
    gate = BatchGate()
    has_begun, may_end, is_alone, may_go_on = (threading.Event() for _ in range(4))
    log: list[str] = []

    def work() -> None:
        with gate.side_by_side():
            log.append("first begins")
            has_begun.set()
            assert may_end.wait(SECONDS)
            log.append("first ends")

    def be_alone() -> None:
        with gate.side_by_side(), gate.alone():
            log.append("alone begins")
            is_alone.set()
            assert may_go_on.wait(SECONDS)
            log.append("alone ends")

    def come_late() -> None:
        with gate.side_by_side():
            log.append("late begins")

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(work)
        assert has_begun.wait(SECONDS)
        alone = pool.submit(be_alone)
        may_end.set()
        assert is_alone.wait(SECONDS)
        late = pool.submit(come_late)
        may_go_on.set()
        for one in (first, alone, late):
            one.result(SECONDS)
    assert log == ["first begins", "first ends", "alone begins", "alone ends", "late begins"]


def test_several_that_want_to_be_alone_take_turns() -> None:
    gate = BatchGate()
    inside: list[int] = []

    def be_alone(number: int) -> int:
        with gate.side_by_side(), gate.alone():
            inside.append(number)
            together = len(inside)
            inside.remove(number)
            return together

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(be_alone, range(200), timeout=SECONDS)) == {1}
