"""A pool of child processes that can be killed: an input that hangs or crashes fails alone."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

from penstock import failpoints
from penstock.documents import Fault
from penstock.errors import ErrorClass, Interrupted
from penstock.isolation.child import (
    child_context,
    crash_fault,
    prepare_child,
    run_chunk,
    start_fork_server,
)

if TYPE_CHECKING:
    from pebble import ProcessFuture, ProcessPool

    # The result of a chunk, and the children it was sent to.
    Sent = tuple[ProcessFuture[list[Any]], ProcessPool]

Input = TypeVar("Input")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ChildTask(Generic[Input, Result]):
    """A function to call on every input, with the words for messages about it."""

    function: str
    """`module:function`, for children to find it by. It takes an input and the options by name,
    and returns a Result or a Fault, or raises DocumentFault."""
    doing: str
    """What the function does, for messages: "extracting its text"."""
    name_of: Callable[[Input], str]
    """The name of an input, for messages."""
    size_of: Callable[[Input], int]
    """About how many bytes an input takes in a message."""
    together: int = 16
    """How many inputs go into one message, at most: more where each takes little time."""
    options: Mapping[str, Any] = field(default_factory=dict)


CHUNK_BYTES = 4 * 1024 * 1024
CHUNKS_PER_PROCESS = 3
# Inputs that are sent in one message, with their indexes in the batch.
Chunk: TypeAlias = list[tuple[int, Input]]


def plan_chunks(
    job: ChildTask[Input, Any], inputs: Sequence[tuple[int, Input]], processes: int
) -> list[Chunk[Input]]:
    """Chunks large enough to make messages cheap and small enough to keep all children busy."""
    most = max(1, min(job.together, len(inputs) // (processes * CHUNKS_PER_PROCESS)))
    chunks: list[Chunk[Input]] = []
    total = 0
    for index, one in inputs:
        size = job.size_of(one)
        if not chunks or len(chunks[-1]) == most or total + size > CHUNK_BYTES:
            chunks.append([])
            total = 0
        chunks[-1].append((index, one))
        total += size
    return chunks


# A chunk that takes longer is split; its inputs then get the full time, each alone.
CHUNK_SECONDS = 30.0
# Libraries leak a little, and a new child is cheap.
CHUNKS_PER_CHILD = 400
# A child holds an input in several forms at once: message, bytes, characters, tree.
MEMORY_PER_BYTE = 8
# In chunks, then alone, and twice more for work lost together with all the children.
ROUNDS = 4
STALL_GRACE_SECONDS = 60.0


class ChildPool:
    """Child processes for tasks; safe to use from several threads."""

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

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the children; a call that waits for them raises Interrupted."""
        with self._lock:
            self._closed = True
            self._retire(daemon=False)

    def warm_up(self) -> None:
        """Begin to import what children need, so that the first inputs do not wait for it."""
        start_fork_server(self._warmup)

    def map(self, job: ChildTask[Input, Result], inputs: Sequence[Input]) -> list[Result | Fault]:
        """The result of each input or its fault, in the order given."""
        outcomes: dict[int, Result | Fault] = dict(self._refuse_oversized(job, inputs))
        accepted = [(i, one) for i, one in enumerate(inputs) if i not in outcomes]
        chunks = plan_chunks(job, accepted, self._processes)
        for _ in range(ROUNDS):
            if chunks:
                chunks = self._run_round(job, chunks, outcomes)
        for chunk in chunks:
            for index, one in chunk:
                ended = f"the processes {job.doing} ended several times before its turn"
                outcomes[index] = Fault(ErrorClass.UNKNOWN, f"{job.name_of(one)}: {ended}")
        return [outcomes[index] for index in range(len(inputs))]

    def _refuse_oversized(
        self, job: ChildTask[Input, Result], inputs: Sequence[Input]
    ) -> Iterator[tuple[int, Fault]]:
        most = self._memory_bytes // MEMORY_PER_BYTE
        for index, one in enumerate(inputs):
            size = job.size_of(one)
            if size > most:
                message = (
                    f"{job.name_of(one)}: {size} bytes, more than the {most} that fit into the "
                    "memory of a child process"
                )
                yield index, Fault(ErrorClass.TOO_LARGE, message)

    def _run_round(
        self,
        job: ChildTask[Input, Result],
        chunks: list[Chunk[Input]],
        outcomes: dict[int, Result | Fault],
    ) -> list[Chunk[Input]]:
        """Add the outcomes of this round; return what has to run again, one input at a time."""
        again: list[Chunk[Input]] = []
        for chunk, sent in [(chunk, self._send(job, chunk)) for chunk in chunks]:
            results = self._collect(job, chunk, sent)
            if results is None:
                again += [[one] for one in chunk]
            else:
                outcomes.update(zip((index for index, _ in chunk), results, strict=True))
        return again

    def _collect(
        self, job: ChildTask[Input, Result], chunk: Chunk[Input], sent: "Sent | None"
    ) -> Sequence[Result | Fault] | None:
        """The chunk's outcomes, or None when it is unknown which input failed."""
        from pebble import ProcessExpired

        name = job.name_of(chunk[0][1])
        try:
            return None if sent is None else self._wait(*sent)
        except TimeoutError:
            message = f"{name}: {job.doing} was stopped after {self._timeout_seconds:g} s"
            fault = Fault(ErrorClass.TIMEOUT, message)
        except ProcessExpired as error:
            fault = crash_fault(name, job.doing, error.exitcode)
        except BrokenProcessPool:
            return None
        return [fault] if len(chunk) == 1 else None

    def _send(self, job: ChildTask[Input, Result], chunk: Chunk[Input]) -> "Sent | None":
        """Send a chunk; None when the children have just broken: the next round starts new ones."""
        children = self._running_children()
        seconds = self._timeout_seconds
        named = [(job.name_of(one), one) for _, one in chunk]
        try:
            future = children.schedule(
                run_chunk,
                args=(named, job.function, dict(job.options), job.doing, failpoints.armed()),
                timeout=seconds if len(chunk) == 1 else min(seconds, CHUNK_SECONDS),
            )
        except RuntimeError:
            return None
        self._note_progress()
        future.add_done_callback(self._note_progress)
        return future, children

    def _wait(self, future: "ProcessFuture[list[Any]]", children: "ProcessPool") -> list[Any]:
        while not future.done():
            wait([future], timeout=1.0)
            if future.done():
                break
            if self._closed:
                raise Interrupted("the pool of child processes was closed during work")
            # A child killed in the middle of a message leaves the shared pipe unusable.
            quiet_seconds = time.monotonic() - self._last_progress
            if quiet_seconds > self._timeout_seconds + STALL_GRACE_SECONDS:
                with self._lock:
                    if self._children is children:
                        self._retire()
            if children is not self._children:
                raise BrokenProcessPool("the children were replaced")
        return future.result()

    def _note_progress(self, *_: object) -> None:
        self._last_progress = time.monotonic()

    def _running_children(self) -> "ProcessPool":
        with self._lock:
            if self._closed:
                raise Interrupted("the pool of child processes is closed; make a new one")
            if self._children is not None and not self._children.active:
                self._retire()
            if self._children is None:
                self._children = self._start_children()
            return self._children

    def _retire(self, *, daemon: bool = True) -> None:
        """Stop the children in the background: they are looked at only ten times a second, and
        broken ones may take longer. The program waits for their end unless it is a `daemon`."""
        children, self._children = self._children, None
        if children is None:
            return
        children.stop()  # type: ignore[no-untyped-call]
        if threading.main_thread().is_alive():
            threading.Thread(target=children.join, daemon=daemon).start()
        else:
            # In a call of `atexit`: the program waits for no thread any more.
            children.join()

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
