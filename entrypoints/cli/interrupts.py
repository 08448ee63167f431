"""Ctrl-C and SIGTERM while a command works on a run: the first one stops it, the second at once."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from types import FrameType
from typing import Any, Self

from entrypoints.cli.output import errors

STOPPING = "stopping, a second Ctrl-C stops at once"
# Shells and `timeout` send one signal to the program and again to its group.
ECHO_SECONDS = 0.1
# Time for work to stop before the process ends, whatever it waits for.
STOP_SECONDS = 3.5
LEAVE_SECONDS = 1.0
_SAY_SECONDS = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# An interrupt that is delivered again is not a second one: it is raised again, and not counted.
_to_raise_again = threading.Semaphore(0)
_to_overhear = threading.Semaphore(0)


def deliver_again() -> None:
    """Have this process interrupted once more, because the first time had no effect."""
    _to_raise_again.release()
    _to_overhear.release()
    os.kill(os.getpid(), signal.SIGINT)


def deliver_interrupt_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Python prints and drops a Ctrl-C that arrives while an object is being destroyed or a library
    written in C calls back; the command would go on as if nothing had happened."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        # A moment later: at once it would arrive in this very function, and be dropped again.
        threading.Timer(0.05, deliver_again).start()
    else:
        sys.__unraisablehook__(unraisable)


class Interruption:
    """A block that the first signal interrupts, by KeyboardInterrupt and by a call of `stop`.

    Libraries drop exceptions that come at a bad moment and replace handlers of signals, so a
    thread sees to the end: after some seconds, or a second Ctrl-C, it calls `leave` with the exit
    code and ends the process, whatever that is busy with. Once interrupted, it watches until the
    process has ended.
    """

    def __init__(self, stop: Callable[[], None], leave: Callable[[int], None]) -> None:
        self.number: int | None = None
        """The signal that came, if one did."""
        self._stop = stop
        self._leave = leave
        self._raised = False
        self._is_over = False
        self._said = threading.Event()
        self._reader, self._writer = socket.socketpair()
        self._before: dict[int, Any] = {}
        self._wakeup = -1
        self._watcher = threading.Thread(target=self._watch, name="penstock-stop", daemon=True)

    @property
    def exit_code(self) -> int | None:
        """As shells say it: 130 after Ctrl-C."""
        return None if self.number is None else 128 + self.number

    def __enter__(self) -> Self:
        self._watcher.start()
        self._writer.setblocking(False)
        # Written to at once, whatever the process is busy with and however the signal is handled.
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self.number is not None:
            self._said.wait(_SAY_SECONDS)
            self._is_over = True
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        self._writer.close()
        self._watcher.join()
        self._reader.close()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.number = self.number or number
        if not self._raised or _to_raise_again.acquire(blocking=False):
            self._raised = True
            raise KeyboardInterrupt

    def _watch(self) -> None:
        number = self._next_signal(_SIGNALS)
        if number is None:
            return
        self.number = number
        self._next_signal(_SIGNALS, ECHO_SECONDS)
        with suppress(Exception):
            errors.print(STOPPING, highlight=False)
        self._said.set()
        # In a thread of its own: whatever it waits for must not keep us from the end.
        threading.Thread(target=self._stop, name="penstock-interrupt", daemon=True).start()
        # Of SIGTERM alone there may be a second one from Prefect, after its flow run has ended.
        self._next_signal((signal.SIGINT,), STOP_SECONDS)
        self._end(128 + number)

    def _next_signal(self, wanted: Collection[int], seconds: float | None = None) -> int | None:
        """None when the time is over, or the block."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.001)
            self._reader.settimeout(left)
            try:
                found = self._reader.recv(1)
            except TimeoutError:
                return None
            if not found:
                return None
            again = found[0] == signal.SIGINT and _to_overhear.acquire(blocking=False)
            if found[0] in wanted and not again:
                return found[0]

    def _end(self, exit_code: int) -> None:
        leaving = threading.Thread(target=self._leave_and_flush, args=(exit_code,), daemon=True)
        leaving.start()
        leaving.join(LEAVE_SECONDS)
        os._exit(exit_code)

    def _leave_and_flush(self, exit_code: int) -> None:
        try:
            if not self._is_over:
                self._leave(exit_code)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
