"""Slots are given out in the order they are asked for, and never more than there are."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from penstock.llm.ratelimit import FifoSemaphore

MAX_WAIT_SECONDS = 60.0


def wait_for_line(slots: FifoSemaphore, length: int) -> None:
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while len(slots._waiting) < length:
        assert time.monotonic() < deadline, "nobody joined the line"
        time.sleep(0.001)


def test_a_slot_goes_to_the_thread_that_has_waited_longest() -> None:
    slots, served = FifoSemaphore(1), list[int]()

    def take(number: int) -> None:
        with slots:
            served.append(number)

    with ThreadPoolExecutor(4) as pool, slots:
        for number in range(4):
            pool.submit(take, number)
            wait_for_line(slots, number + 1)
    assert served == [0, 1, 2, 3]


def test_a_thread_that_releases_a_slot_does_not_overtake_waiting_ones() -> None:
    slots, entered = FifoSemaphore(1), threading.Event()

    def take() -> None:
        with slots:
            entered.set()

    with ThreadPoolExecutor(1) as pool:
        with slots:
            pool.submit(take)
            wait_for_line(slots, 1)
        with slots:
            assert entered.is_set()


def test_no_more_are_inside_than_there_are_slots() -> None:
    slots, lock = FifoSemaphore(3), threading.Lock()
    inside, most = 0, 0

    def work(_: int) -> None:
        nonlocal inside, most
        with slots:
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.001)
            with lock:
                inside -= 1

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(work, range(60)))
    assert (most, inside) == (3, 0)


def test_a_number_of_slots_that_changes_holds_for_those_that_come_and_for_those_that_wait() -> None:
    slots, entered = FifoSemaphore(2), threading.Semaphore(0)

    def take() -> None:
        slots.acquire()
        entered.release()

    with ThreadPoolExecutor(4) as pool:
        for _ in range(2):
            slots.acquire()
        slots.resize(1)
        waiting = [pool.submit(take) for _ in range(3)]
        wait_for_line(slots, 3)
        slots.release()
        assert len(slots._waiting) == 3, "one of two was released, and one is left"
        slots.release()
        assert entered.acquire(timeout=MAX_WAIT_SECONDS)
        assert len(slots._waiting) == 2
        slots.resize(3)
        for one in waiting:
            one.result(timeout=MAX_WAIT_SECONDS)
