"""Brings listed documents in: threads fetch ahead while others are recorded, within bounds."""

import queue
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from penstock.runs.batches import in_batches

Document = TypeVar("Document")
Came = TypeVar("Came")

# A batch that is not full by then is handed out as it is, so that work on it can begin.
PATIENCE_SECONDS = 0.25


def arrive_in_line(
    documents: Iterable[Document], bring: Callable[[Document], Came], batch_size: int
) -> Iterator[list[Came]]:
    """One after the other, in batches: for what need not be waited for."""
    return in_batches(map(bring, documents), batch_size)


@dataclass(slots=True)
class Crowd:
    """Documents under way at the same time: no more than `ahead`, whoever is first comes first."""

    threads: Executor
    ahead: int
    batch_size: int
    _came: "queue.SimpleQueue[Future[object]]" = field(default_factory=queue.SimpleQueue)
    _under_way: set["Future[object]"] = field(default_factory=set)

    def arrive(
        self, documents: Iterable[Document], bring: Callable[[Document], Came]
    ) -> Iterator[list[Came]]:
        """Batches of what came. If the stream raises, what it gave before is handed out first."""
        stream = _Stream(iter(documents))
        try:
            while True:
                self._fill(stream, bring)
                batch: list[Came] = self._gather()
                if not batch:
                    break
                yield batch
            stream.end()
        finally:
            # Also when the reader stops: nothing more is begun.
            for future in self._under_way:
                future.cancel()

    def _fill(self, stream: "_Stream[Document]", bring: Callable[[Document], Came]) -> None:
        while len(self._under_way) < self.ahead and (one := stream.next()) is not None:
            future: Future[object] = self.threads.submit(bring, one)
            self._under_way.add(future)
            future.add_done_callback(self._came.put)

    def _gather(self) -> list[Came]:
        """What has come by now, at least one if any is under way; no more than half of the crowd,
        so that the threads never run out of documents."""
        batch: list[Came] = []
        most = min(self.batch_size, max(self.ahead // 2, 1))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._under_way and len(batch) < most:
            try:
                left = max(deadline - time.monotonic(), 0.0)
                future = self._came.get(timeout=left if batch else None)
            except queue.Empty:
                break
            self._under_way.discard(future)
            batch.append(future.result())  # type: ignore[arg-type]  # what `bring` gave
        return batch


class _Stream(Generic[Document]):
    """A stream that keeps its failure until what came before it has been dealt with."""

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
