"""Starts servers and workers, keeps them running, and ends them: each of them is a part."""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Protocol

from penstock.errors import ServiceError
from penstock.local.guard import Guard
from penstock.local.processes import (
    ProcessIdentity,
    ask_children_to_end,
    end_marked,
    last_lines,
    mark_of,
    marked_environment,
    wait_until,
)
from penstock.local.state import PartState, Phase, SupervisorState, read_state, write_state

_START_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_FIRST_DELAY_SECONDS = 1.0
_LONGEST_DELAY_SECONDS = 60.0
_LOG_LINES = 8
GRACE_SECONDS = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Part(Protocol):
    """A server or worker."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str | None: ...

    @property
    def log_path(self) -> Path: ...

    def start(self) -> None:
        """Start it, or start it again, and wait until it can be used; ServiceError says why not."""

    def process(self) -> ProcessIdentity | None:
        """The living process, if there is one."""

    def stop(self) -> None:
        """End it and all it has started; nothing happens when it is not running."""


class Supervisor:
    """Starts parts one after the other, and ends them in the reverse order.

    The state file tells other processes what runs; `say` is called with what happens.
    """

    def __init__(self, state_path: Path, say: Callable[[str], None]) -> None:
        self.id = uuid.uuid4().hex
        self._state_path = state_path
        self._say = say
        self._base = SupervisorState(
            id=self.id,
            supervisor=ProcessIdentity.of(os.getpid()),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            phase=Phase.STARTING,
        )
        self._watched: list[Watched] = []
        self._given: list[PartState] = []
        self._guard: Guard | None = None

    @property
    def state(self) -> SupervisorState:
        own = (
            PartState(part.name, part.address, str(part.log_path), part.process())
            for part in (watched.part for watched in self._watched)
        )
        return replace(self._base, parts=(*self._given, *own))

    def start_guard(self) -> None:
        """End all parts if this process is killed and the state file is removed."""
        self.announce()
        self._guard = Guard(self.id, self._state_path)

    def start(self, part: Part) -> None:
        """Start a part; from now on it is watched."""
        # Before the start: what is half started has to be ended too.
        self._watched.append(Watched(part))
        part.start()
        self.announce()

    def add_given(self, name: str, address: str, variable: str) -> None:
        """Name a part that is not ours."""
        self._given.append(PartState(name, address, None, None, variable))

    def add_environment(self, variables: Mapping[str, str]) -> None:
        self._base = replace(self._base, environment={**self._base.environment, **variables})

    def add_note(self, note: str) -> None:
        self._base = replace(self._base, notes=(*self._base.notes, note))

    def describe_server(self, version: str, auth_digest: str) -> None:
        """Record which Prefect server this is, by which other commands decide to use it."""
        self._base = replace(self._base, version=version, auth_digest=auth_digest)

    def enter(self, step: str) -> None:
        """Record what is being done now."""
        self._base = replace(self._base, step=step)
        self.announce()

    def become_ready(self) -> None:
        self._base = replace(self._base, phase=Phase.READY, step="ready")
        self.announce()

    def announce(self) -> None:
        """Write the state file."""
        write_state(self._state_path, self.state)

    def owns_state(self) -> bool:
        """False: the file was removed, or another supervisor has replaced it."""
        found = read_state(self._state_path)
        return found is not None and found.id == self.id

    def watch(self) -> None:
        """Start again whatever ends by itself, until the state file is gone or another's."""
        while self.owns_state():
            for watched in self._watched:
                self._look_at(watched)
            time.sleep(_LOOK_SECONDS)
        self._say(f"{self._state_path} is gone: stopping")

    def stop(self) -> None:
        """End all parts, the last one first; those of one kind together."""
        self._base = replace(self._base, phase=Phase.STOPPING)
        if self.owns_state():
            self._try_announce()
        backwards = [watched.part for watched in reversed(self._watched)]
        for kind, found in groupby(backwards, lambda part: part.name.partition("-")[0]):
            parts = list(found)
            self._say(f"stopping {kind if len(parts) == 1 else f'{len(parts)} {kind}s'}")
            with ThreadPoolExecutor(len(parts)) as pool:
                for failure in pool.map(_stop, parts):
                    if failure:
                        self._say(failure)
        end_marked(self.id, GRACE_SECONDS)
        if self._guard is not None:
            self._guard.stop()
        if self.owns_state():
            self._state_path.unlink(missing_ok=True)

    def _look_at(self, watched: "Watched") -> None:
        part = watched.part
        if watched.due is None:
            if part.process() is None:
                lines, delay = last_lines(part.log_path, _LOG_LINES), watched.postpone()
                self._say(
                    f"{part.name} ended by itself and is started again in {delay:g} s. "
                    f"Its log, {part.log_path}, ends with:\n{lines}"
                )
                self._try_announce()
        elif time.monotonic() >= watched.due:
            self._restart(watched)

    def _restart(self, watched: "Watched") -> None:
        name = watched.part.name
        try:
            watched.part.start()
        except Exception as error:  # the others are watched all the same
            self._say(f"{_describe(error)}\n{name} is tried again in {watched.postpone():g} s")
            return
        watched.note_start()
        self._say(f"{name} runs again")
        self._try_announce()

    def _try_announce(self) -> None:
        """A full disk must not end what runs, nor keep it running."""
        try:
            self.announce()
        except OSError as error:
            self._say(f"{self._state_path} could not be written: {error}")


@dataclass
class Watched:
    """A part, and when it is started again after it ended by itself."""

    part: Part
    started: float = field(default_factory=time.monotonic)
    delay_seconds: float = _FIRST_DELAY_SECONDS
    due: float | None = None

    def postpone(self) -> float:
        """Set the time of the next start, later each time unless it had run well; the delay."""
        now = time.monotonic()
        if now - self.started > _LONGEST_DELAY_SECONDS:
            self.delay_seconds = _FIRST_DELAY_SECONDS
        delay, self.due = self.delay_seconds, now + self.delay_seconds
        self.delay_seconds = min(delay * 2, _LONGEST_DELAY_SECONDS)
        return delay

    def note_start(self) -> None:
        self.started, self.due = time.monotonic(), None


class ProcessPart:
    """A command in a session of its own, where the terminal's Ctrl-C does not reach it.

    `children_first` is for one that would not wait for its children when it is asked to end.
    `lifeline` is for one that ends when its standard input is closed, which happens however this
    process ends.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        logs: Path,
        supervisor_id: str,
        *,
        address: str | None = None,
        is_ready: Callable[[], bool] = lambda: True,
        grace_seconds: float = GRACE_SECONDS,
        children_first: bool = False,
        lifeline: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.address = address
        self.log_path = logs / f"{name}.log"
        self._command = command
        self._mark = mark_of(supervisor_id, name)
        self._is_ready = is_ready
        self._grace_seconds = grace_seconds
        self._children_first = children_first
        self._environment = environment or {}
        self._stdin = subprocess.PIPE if lifeline else subprocess.DEVNULL
        self._started: subprocess.Popen[bytes] | None = None

    @property
    def exit_code(self) -> int | None:
        return None if self._started is None else self._started.poll()

    def start(self) -> None:
        # What an earlier one has started may still hold its port.
        end_marked(self._mark, self._grace_seconds)
        with self.log_path.open("ab") as log:
            started = self._started = subprocess.Popen(
                self._command,
                stdin=self._stdin,
                stdout=log,
                stderr=log,
                env={**marked_environment(self._mark), **self._environment},
                start_new_session=True,
            )
        wait_until(lambda: started.poll() is not None or self._is_ready(), _START_SECONDS)
        if started.poll() is not None or not self._is_ready():
            self.stop()
            raise ServiceError(
                f"{self.name} did not start. "
                f"Its log, {self.log_path}, ends with:\n{last_lines(self.log_path)}"
            )

    def process(self) -> ProcessIdentity | None:
        if self._started is None or self._started.poll() is not None:
            return None
        return ProcessIdentity.of(self._started.pid)

    def stop(self) -> None:
        """In good order, then by force, with all it has started."""
        started, self._started = self._started, None
        if started is not None and started.poll() is None:
            if self._children_first:
                ask_children_to_end(started.pid, self._grace_seconds)
            started.terminate()
            wait_until(lambda: started.poll() is not None, self._grace_seconds)
        end_marked(self._mark, self._grace_seconds)
        if started is not None:
            with started:  # closes the pipe and waits
                pass


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C, SIGTERM or SIGHUP ends the block; then, or when it ends by itself, `stop`
    is called, which no further signal interrupts."""
    before = {number: signal.signal(number, _interrupt) for number in _SIGNALS}
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for number in _SIGNALS:
            # A function, since children would inherit SIG_IGN.
            signal.signal(number, lambda _number, _frame: None)
        try:
            stop()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _stop(part: Part) -> str | None:
    """What went wrong, so that the others are stopped all the same."""
    try:
        part.stop()
    except Exception as error:
        return f"{part.name} was not stopped: {_describe(error)}"
    return None


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, ServiceError) else repr(error)
