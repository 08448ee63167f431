"""Text extraction in child processes that can be killed, so that a bad document harms no other."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.documents import ExtractedText, Fault, RawDocument
from penstock.errors import UsageError
from penstock.text.child import extract_chunk, prepare_child
from penstock.text.chunks import Chunk, plan_chunks
from penstock.text.processes import child_context
from penstock.text.verdicts import crash_fault, oversize_fault, restart_fault, timeout_fault

if TYPE_CHECKING:
    from pebble import ProcessFuture, ProcessPool

Outcome = ExtractedText | Fault

EXTRACTOR = "penstock.text.extractor:extract_text"

# A chunk is short work, so a long one is suspect; its documents then get the full time, alone.
CHUNK_SECONDS = 30.0
# Libraries leak a little, and a fresh child costs next to nothing.
CHUNKS_PER_CHILD = 1000
# Extraction holds a document in several forms at once: message, bytes, characters, tree.
MEMORY_PER_BYTE = 8
# In chunks, then alone, and twice more for work lost together with all the children.
ROUNDS = 4
STALL_GRACE_SECONDS = 60.0


class TextPool:
    """Child processes that turn documents into text; safe to use from several threads."""

    def __init__(
        self,
        *,
        processes: int,
        timeout_seconds: float = 300.0,
        memory_bytes: int = 2 * 1024**3,
        text_chars: int = 5_000_000,
        extractor: str = EXTRACTOR,
    ) -> None:
        """`extractor` is an import path, `module:function`, for the children to find it by."""
        self._processes = processes
        self._timeout_seconds = timeout_seconds
        self._memory_bytes = memory_bytes
        self._text_chars = text_chars
        self._extractor = extractor
        self._lock = threading.Lock()
        self._children: ProcessPool | None = None
        self._closed = False
        self._last_progress = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the children; a call that still waits for them raises UsageError."""
        with self._lock:
            self._closed = True
            children, self._children = self._children, None
        if children is not None:
            children.stop()  # type: ignore[no-untyped-call]
            children.join()

    def extract_many(self, documents: Sequence[RawDocument]) -> list[Outcome]:
        """The text of each document, or what is wrong with it, in the order given."""
        outcomes = dict(self._refuse_oversized(documents))
        accepted = [(i, document) for i, document in enumerate(documents) if i not in outcomes]
        chunks = plan_chunks(accepted, self._processes)
        for _ in range(ROUNDS):
            if chunks:
                chunks = self._run_round(chunks, outcomes)
        for chunk in chunks:
            outcomes.update(zip(chunk.indexes, map(restart_fault, chunk.documents), strict=True))
        return [outcomes[index] for index in range(len(documents))]

    def _refuse_oversized(self, documents: Sequence[RawDocument]) -> Iterator[tuple[int, Outcome]]:
        most = self._memory_bytes // MEMORY_PER_BYTE
        for index, document in enumerate(documents):
            if len(document.content) > most:
                yield index, oversize_fault(document, most)

    def _run_round(self, chunks: list[Chunk], outcomes: dict[int, Outcome]) -> list[Chunk]:
        """Fill in what can be told now; return what has to run again, one document at a time."""
        again: list[Chunk] = []
        sent = [(chunk, self._send(chunk)) for chunk in chunks]
        for chunk, ticket in sent:
            results = self._collect(chunk, ticket)
            if results is None:
                again += chunk.split()
            else:
                outcomes.update(zip(chunk.indexes, results, strict=True))
        return again

    def _collect(self, chunk: Chunk, ticket: "Ticket | None") -> list[Outcome] | None:
        """The chunk's outcomes, or None when nobody can tell whose fault it was."""
        from pebble import ProcessExpired

        try:
            return None if ticket is None else self._wait(ticket)
        except TimeoutError:
            fault = timeout_fault(chunk.documents[0], self._timeout_seconds)
        except ProcessExpired as error:
            fault = crash_fault(chunk.documents[0], error.exitcode)
        except BrokenProcessPool:
            return None
        return [fault] if chunk.alone else None

    def _send(self, chunk: Chunk) -> "Ticket | None":
        children = self._running_children()
        seconds = self._timeout_seconds
        try:
            future = children.schedule(
                extract_chunk,
                args=(list(chunk.documents), self._extractor, self._text_chars),
                timeout=seconds if chunk.alone else min(seconds, CHUNK_SECONDS),
            )
        except RuntimeError:
            return None  # the children broke this very moment; the next round starts new ones
        self._note_progress()
        future.add_done_callback(self._note_progress)
        return Ticket(future, children)

    def _wait(self, ticket: "Ticket") -> list[Outcome]:
        while not ticket.future.done():
            wait([ticket.future], timeout=1.0)
            if ticket.future.done():
                break
            if self._closed:
                raise UsageError("the text pool was closed while documents were in it")
            if self._has_stalled():
                self._drop(ticket.children)
            if ticket.children is not self._children:
                raise BrokenProcessPool("the children were replaced")
        return ticket.future.result()

    def _note_progress(self, *_: object) -> None:
        self._last_progress = time.monotonic()

    def _has_stalled(self) -> bool:
        """A child killed in the middle of a message leaves the pipe they share unusable."""
        quiet_seconds = time.monotonic() - self._last_progress
        return quiet_seconds > self._timeout_seconds + STALL_GRACE_SECONDS

    def _running_children(self) -> "ProcessPool":
        with self._lock:
            if self._closed:
                raise UsageError("the text pool is closed; make a new one")
            if self._children is not None and not self._children.active:
                self._retire()
            if self._children is None:
                self._children = self._start_children()
            return self._children

    def _drop(self, children: "ProcessPool") -> None:
        with self._lock:
            if self._children is children:
                self._retire()

    def _retire(self) -> None:
        """Have broken children stopped in the background, since that may take its time."""
        children, self._children = self._children, None
        if children is not None:
            children.stop()  # type: ignore[no-untyped-call]
            threading.Thread(target=children.join, daemon=True).start()

    def _start_children(self) -> "ProcessPool":
        from pebble import ProcessPool

        self._note_progress()
        return ProcessPool(
            max_workers=self._processes,
            max_tasks=CHUNKS_PER_CHILD,
            initializer=prepare_child,
            initargs=(self._memory_bytes,),
            context=child_context(),
        )


@dataclass(frozen=True, slots=True)
class Ticket:
    """A chunk on its way, and the children it was given to."""

    future: "ProcessFuture[list[Outcome]]"
    children: "ProcessPool"
