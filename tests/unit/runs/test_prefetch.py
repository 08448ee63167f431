"""Documents are fetched ahead by threads, within bounds, and handed out in batches."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest

from penstock.errors import ListingFailed
from penstock.runs.prefetch import Prefetcher, in_batches
from tests.together import wait_until

THREADS = 4


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(THREADS) as pool:
        yield pool


def failing_after(count: int) -> Iterator[int]:
    yield from range(count)
    raise ListingFailed("the site went away")


def double(number: int) -> int:
    return 2 * number


def test_every_document_is_fetched_once(threads: ThreadPoolExecutor) -> None:
    batches = list(Prefetcher(threads, ahead=8, batch_size=100).batches(range(500), double))
    assert sorted(chain.from_iterable(batches)) == [2 * n for n in range(500)]
    assert all(batches)


def test_an_empty_stream_has_no_batches(threads: ThreadPoolExecutor) -> None:
    assert list(Prefetcher(threads, ahead=8, batch_size=4).batches([], double)) == []


@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_what_came_before_a_failure_is_handed_out_first(
    threads: ThreadPoolExecutor, count: int
) -> None:
    came: list[int] = []
    batches = Prefetcher(threads, ahead=8, batch_size=4).batches(failing_after(count), double)
    with pytest.raises(ListingFailed):
        came.extend(chain.from_iterable(batches))
    assert sorted(came) == [2 * n for n in range(count)]


def test_no_more_is_taken_from_the_stream_than_can_be_under_way(
    threads: ThreadPoolExecutor,
) -> None:
    taken = 0

    def stream() -> Iterator[int]:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield number

    arriving = Prefetcher(threads, ahead=8, batch_size=100).batches(stream(), double)
    next(arriving)
    assert taken <= 8 + 4


def test_a_slow_document_does_not_hold_the_others_up(threads: ThreadPoolExecutor) -> None:
    released = threading.Event()

    def fetch(number: int) -> int:
        if number == 0:
            released.wait(30)
        return number

    came: list[int] = []
    for batch in Prefetcher(threads, ahead=8, batch_size=4).batches(range(100), fetch):
        came += batch
        if len(came) == 99:
            released.set()
    assert came[-1] == 0
    assert sorted(came) == list(range(100))


def test_when_the_reader_stops_nothing_more_is_begun(threads: ThreadPoolExecutor) -> None:
    begun: list[int] = []
    gate = threading.Event()

    def fetch(number: int) -> int:
        begun.append(number)
        if number > 3:
            gate.wait(30)
        return number

    arriving = Prefetcher(threads, ahead=64, batch_size=1).batches(range(1000), fetch)
    next(arriving)
    arriving.close()  # type: ignore[attr-defined]  # it is a generator
    gate.set()
    wait_until(lambda: threads._work_queue.empty())
    assert len(begun) <= 4 + 2 * THREADS


def test_an_error_of_a_thread_reaches_the_reader(threads: ThreadPoolExecutor) -> None:
    def fetch(number: int) -> int:
        if number == 5:
            raise ValueError("no such thing")
        return number

    with pytest.raises(ValueError, match="no such thing"):
        list(Prefetcher(threads, ahead=8, batch_size=4).batches(range(10), fetch))


@pytest.mark.parametrize("count", [0, 3, 10])
def test_batches_without_threads_are_in_order_and_full(count: int) -> None:
    batches = list(in_batches(map(double, range(count)), 4))
    assert list(chain.from_iterable(batches)) == [2 * n for n in range(count)]
    assert all(len(batch) == 4 for batch in batches[:-1])


def test_without_threads_what_came_before_a_failure_is_handed_out_first() -> None:
    came: list[int] = []
    with pytest.raises(ListingFailed):
        came.extend(chain.from_iterable(in_batches(map(double, failing_after(3)), 2)))
    assert came == [0, 2, 4]
