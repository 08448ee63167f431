"""Keeps the parts of an installation running, from the first start to the last stop."""

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from penstock.errors import ServiceError
from penstock.launcher.guard import Guard
from penstock.launcher.installation_state import (
    InstallationState,
    PartState,
    read_installation,
    write_installation,
)
from penstock.launcher.marks import end_marked
from penstock.launcher.parts import Part
from penstock.launcher.processes import ProcessIdentity, last_lines
from penstock.launcher.state import Phase

Say = Callable[[str], None]

_LOOK_SECONDS = 0.5
_FIRST_DELAY_SECONDS = 1.0
_LONGEST_DELAY_SECONDS = 60.0
_LOG_LINES = 8
_GRACE_SECONDS = 10.0


@dataclass
class Watched:
    """A part, and when it is started again after it ended by itself."""

    part: Part
    started: float = field(default_factory=time.monotonic)
    delay_seconds: float = _FIRST_DELAY_SECONDS
    due: float | None = None

    def postpone(self) -> float:
        """Wait, longer each time, but for one that had run well; for how long."""
        now = time.monotonic()
        if now - self.started > _LONGEST_DELAY_SECONDS:
            self.delay_seconds = _FIRST_DELAY_SECONDS
        delay, self.due = self.delay_seconds, now + self.delay_seconds
        self.delay_seconds = min(delay * 2, _LONGEST_DELAY_SECONDS)
        return delay

    def note_start(self) -> None:
        self.started, self.due = time.monotonic(), None


class Installation:
    """Starts parts one after the other, and ends them the other way round.

    `say` is told what happens. Whoever has the state file can find all that runs.
    """

    def __init__(self, state_path: Path, say: Say) -> None:
        self.id = uuid.uuid4().hex
        self._state_path = state_path
        self._say = say
        self._supervisor = ProcessIdentity.of(os.getpid())
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._phase = Phase.STARTING
        self._step = ""
        self._watched: list[Watched] = []
        self._given: list[PartState] = []
        self._environment: dict[str, str] = {}
        self._notes: list[str] = []
        self._guard: Guard | None = None

    def be_guarded(self) -> None:
        """Should this process be killed and the state file be removed, all the parts end."""
        self.announce()
        self._guard = Guard(self.id, self._state_path)

    def enter(self, step: str) -> None:
        """Tell what is being done now."""
        self._step = step
        self.announce()

    def start(self, part: Part) -> None:
        """Start a part; from now on it is looked after."""
        # Before the start: what is half started has to be ended too.
        self._watched.append(Watched(part))
        part.start()
        self.announce()

    def add_given(self, name: str, address: str, variable: str) -> None:
        """A part that somebody else looks after."""
        self._given.append(PartState(name, address, None, None, variable))

    def add_environment(self, variables: Mapping[str, str]) -> None:
        self._environment |= variables

    def add_note(self, note: str) -> None:
        self._notes.append(note)

    def become_ready(self) -> None:
        self._phase = Phase.READY
        self.enter("ready")

    @property
    def state(self) -> InstallationState:
        parts = (*self._given, *(_part_state(watched.part) for watched in self._watched))
        return InstallationState(
            id=self.id,
            supervisor=self._supervisor,
            started_at=self._started_at,
            phase=self._phase,
            step=self._step,
            environment=self._environment,
            parts=parts,
            notes=tuple(self._notes),
        )

    def announce(self) -> None:
        write_installation(self._state_path, self.state)

    def watch(self) -> None:
        """Start again whatever ends by itself, until the state file is gone or another's."""
        while self._owns_state():
            for watched in self._watched:
                self._look_at(watched)
            time.sleep(_LOOK_SECONDS)
        self._say(f"{self._state_path} is gone: stopping")

    def stop(self) -> None:
        """End all parts, the last one first; those of one kind together."""
        self._phase = Phase.STOPPING
        if self._owns_state():
            self._try_announce()
        for kind, parts in self._by_kind():
            self._say(f"stopping {kind if len(parts) == 1 else f'{len(parts)} {kind}s'}")
            with ThreadPoolExecutor(len(parts)) as pool:
                for failure in pool.map(_stop, parts):
                    if failure:
                        self._say(failure)
        end_marked(self.id, _GRACE_SECONDS)
        if self._guard is not None:
            self._guard.stop()
        if self._owns_state():
            self._state_path.unlink(missing_ok=True)

    def _by_kind(self) -> Iterator[tuple[str, list[Part]]]:
        backwards = [watched.part for watched in reversed(self._watched)]
        for kind, parts in groupby(backwards, lambda part: part.name.partition("-")[0]):
            yield kind, list(parts)

    def _look_at(self, watched: Watched) -> None:
        if watched.due is None:
            if watched.part.process() is None:
                self._note_end(watched)
        elif time.monotonic() >= watched.due:
            self._restart(watched)

    def _try_announce(self) -> None:
        """A full disk must not end what runs, nor keep it running."""
        try:
            self.announce()
        except OSError as error:
            self._say(f"{self._state_path} could not be written: {error}")

    def _note_end(self, watched: Watched) -> None:
        part, delay = watched.part, watched.postpone()
        self._say(
            f"{part.name} ended by itself and is started again in {delay:g} s. "
            f"Its log, {part.log_path}, ends with:\n{last_lines(part.log_path, _LOG_LINES)}"
        )
        self._try_announce()

    def _restart(self, watched: Watched) -> None:
        try:
            watched.part.start()
        except Exception as error:  # the others are looked after all the same
            self._say(
                f"{_told(error)}\n{watched.part.name} is tried again in {watched.postpone():g} s"
            )
            return
        watched.note_start()
        self._say(f"{watched.part.name} runs again")
        self._try_announce()

    def _owns_state(self) -> bool:
        state = read_installation(self._state_path)
        return state is not None and state.id == self.id


def _part_state(part: Part) -> PartState:
    return PartState(part.name, part.address, str(part.log_path), part.process())


def _stop(part: Part) -> str | None:
    """What went wrong, so that the others are stopped all the same."""
    try:
        part.stop()
    except Exception as error:
        return f"{part.name} was not stopped: {_told(error)}"
    return None


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, ServiceError) else repr(error)
