"""Fetches listed documents ahead in threads, within bounds."""

import queue
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

Item = TypeVar("Item")


def in_batches(
    items: Iterable[Item], size: int, *, first: int | None = None
) -> Iterator[list[Item]]:
    """Lists of `size`, the last one shorter; beginning with `first`, each twice as long as the one
    before.

    If the stream raises, what it gave before is handed out first.
    """
    stream = iter(items)
    failure: Exception | None = None
    wanted = first or size
    while failure is None:
        batch: list[Item] = []
        try:
            batch.extend(islice(stream, wanted))
            wanted = min(2 * wanted, size)
        except Exception as error:
            failure = error
        if not batch and failure is None:
            return
        if batch:
            yield batch
    raise failure


Document = TypeVar("Document")
Fetched = TypeVar("Fetched")

# A batch that is not full by then is handed out anyway, so that work on it can begin.
BATCH_SECONDS = 0.25


@dataclass(slots=True)
class Prefetcher:
    """Fetches up to `ahead` documents at once; batches hold them in the order they finish."""

    threads: Executor
    ahead: int
    batch_size: int
    _done: "queue.SimpleQueue[Future[object]]" = field(default_factory=queue.SimpleQueue)
    _under_way: set["Future[object]"] = field(default_factory=set)

    def batches(
        self, documents: Iterable[Document], fetch: Callable[[Document], Fetched]
    ) -> Iterator[list[Fetched]]:
        """Batches of fetched documents. If the stream raises, what it gave before comes first."""
        stream = _Stream(iter(documents))
        try:
            while True:
                self._fill(stream, fetch)
                batch: list[Fetched] = self._gather()
                if not batch:
                    break
                yield batch
            stream.end()
        finally:
            # Also when the consumer stops early: start nothing more.
            for future in self._under_way:
                future.cancel()

    def _fill(self, stream: "_Stream[Document]", fetch: Callable[[Document], Fetched]) -> None:
        while len(self._under_way) < self.ahead and (one := stream.next()) is not None:
            future: Future[object] = self.threads.submit(fetch, one)
            self._under_way.add(future)
            future.add_done_callback(self._done.put)

    def _gather(self) -> list[Fetched]:
        """What is done by now, at least one if any is under way; at most half of `ahead`, so that
        the threads never run out of documents."""
        batch: list[Fetched] = []
        most = min(self.batch_size, max(self.ahead // 2, 1))
        deadline = time.monotonic() + BATCH_SECONDS
        while self._under_way and len(batch) < most:
            try:
                left = max(deadline - time.monotonic(), 0.0)
                future = self._done.get(timeout=left if batch else None)
            except queue.Empty:
                break
            self._under_way.discard(future)
            batch.append(future.result())  # type: ignore[arg-type]  # what `fetch` returned
        return batch


class _Stream(Generic[Document]):
    """A stream whose error is raised only at `end`, after what came before it was handled."""

    def __init__(self, documents: Iterator[Document]) -> None:
        self._documents = documents
        self._failure: Exception | None = None
        self._over = False

    def next(self) -> Document | None:
        if self._over:
            return None
        try:
            return next(self._documents)
        except StopIteration:
            self._over = True
        except Exception as error:
            self._over, self._failure = True, error
        return None

    def end(self) -> None:
        if self._failure is not None:
            raise self._failure
