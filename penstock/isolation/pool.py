"""Child processes that can be killed, shared by every kind of work that may go wrong in them."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.documents import Fault
from penstock.errors import Interrupted
from penstock.isolation.child import prepare_child, run_chunk
from penstock.isolation.chunks import Chunk, plan_chunks
from penstock.isolation.job import Input, Job, Result
from penstock.isolation.processes import child_context
from penstock.isolation.verdicts import crash_fault, oversize_fault, restart_fault, timeout_fault

if TYPE_CHECKING:
    from pebble import ProcessFuture, ProcessPool

# A chunk is short work, so a long one is suspect; its inputs then get the full time, alone.
CHUNK_SECONDS = 30.0
# Libraries leak a little, and a fresh child costs next to nothing.
CHUNKS_PER_CHILD = 100
# A child holds an input in several forms at once: message, bytes, characters, tree.
MEMORY_PER_BYTE = 8
# In chunks, then alone, and twice more for work lost together with all the children.
ROUNDS = 4
STALL_GRACE_SECONDS = 60.0


class ChildPool:
    """Child processes that do jobs; safe to use from several threads."""

    def __init__(
        self,
        *,
        processes: int,
        timeout_seconds: float = 300.0,
        memory_bytes: int = 2 * 1024**3,
        warmup: tuple[str, ...] = (),
    ) -> None:
        """`warmup` names the modules that children should find already imported."""
        self._processes = processes
        self._timeout_seconds = timeout_seconds
        self._memory_bytes = memory_bytes
        self._warmup = warmup
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
        """Stop the children; a call that still waits for them raises Interrupted."""
        with self._lock:
            self._closed = True
            children, self._children = self._children, None
        if children is not None:
            children.stop()  # type: ignore[no-untyped-call]
            children.join()

    def map(self, job: Job[Input, Result], inputs: Sequence[Input]) -> list[Result | Fault]:
        """The result of each input, or what is wrong with it, in the order given."""
        outcomes: dict[int, Result | Fault] = dict(self._refuse_oversized(job, inputs))
        accepted = [(i, one) for i, one in enumerate(inputs) if i not in outcomes]
        chunks = plan_chunks(accepted, job.size_of, self._processes)
        for _ in range(ROUNDS):
            if chunks:
                chunks = self._run_round(job, chunks, outcomes)
        for chunk in chunks:
            for index, one in zip(chunk.indexes, chunk.inputs, strict=True):
                outcomes[index] = restart_fault(job.name_of(one), job.doing)
        return [outcomes[index] for index in range(len(inputs))]

    def _refuse_oversized(
        self, job: Job[Input, Result], inputs: Sequence[Input]
    ) -> Iterator[tuple[int, Fault]]:
        most = self._memory_bytes // MEMORY_PER_BYTE
        for index, one in enumerate(inputs):
            size = job.size_of(one)
            if size > most:
                yield index, oversize_fault(job.name_of(one), size, most)

    def _run_round(
        self,
        job: Job[Input, Result],
        chunks: list[Chunk[Input]],
        outcomes: dict[int, Result | Fault],
    ) -> list[Chunk[Input]]:
        """Fill in what can be told now; return what has to run again, one input at a time."""
        again: list[Chunk[Input]] = []
        sent = [(chunk, self._send(job, chunk)) for chunk in chunks]
        for chunk, ticket in sent:
            results = self._collect(job, chunk, ticket)
            if results is None:
                again += chunk.split()
            else:
                outcomes.update(zip(chunk.indexes, results, strict=True))
        return again

    def _collect(
        self, job: Job[Input, Result], chunk: Chunk[Input], ticket: "Ticket | None"
    ) -> Sequence[Result | Fault] | None:
        """The chunk's outcomes, or None when nobody can tell whose fault it was."""
        from pebble import ProcessExpired

        name = job.name_of(chunk.inputs[0])
        try:
            return None if ticket is None else self._wait(ticket)
        except TimeoutError:
            fault = timeout_fault(name, job.doing, self._timeout_seconds)
        except ProcessExpired as error:
            fault = crash_fault(name, job.doing, error.exitcode)
        except BrokenProcessPool:
            return None
        return [fault] if chunk.alone else None

    def _send(self, job: Job[Input, Result], chunk: Chunk[Input]) -> "Ticket | None":
        children = self._running_children()
        seconds = self._timeout_seconds
        named = [(job.name_of(one), one) for one in chunk.inputs]
        try:
            future = children.schedule(
                run_chunk,
                args=(named, job.function, dict(job.options), job.doing),
                timeout=seconds if chunk.alone else min(seconds, CHUNK_SECONDS),
            )
        except RuntimeError:
            return None  # the children broke this very moment; the next round starts new ones
        self._note_progress()
        future.add_done_callback(self._note_progress)
        return Ticket(future, children)

    def _wait(self, ticket: "Ticket") -> list[Any]:
        while not ticket.future.done():
            wait([ticket.future], timeout=1.0)
            if ticket.future.done():
                break
            if self._closed:
                raise Interrupted("the pool of child processes was closed while work was in it")
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
                raise Interrupted("the pool of child processes is closed; make a new one")
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
            initargs=(self._memory_bytes, self._warmup),
            context=child_context(self._warmup),
        )


@dataclass(frozen=True, slots=True)
class Ticket:
    """A chunk on its way, and the children it was given to."""

    future: "ProcessFuture[list[Any]]"
    children: "ProcessPool"
