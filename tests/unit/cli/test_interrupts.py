"""Ctrl-C reaches a command wherever it is."""

import signal
import subprocess
import sys
import time

import pytest

from entrypoints.cli.interrupts import (
    ECHO_SECONDS,
    LEAVE_SECONDS,
    STOP_SECONDS,
    STOPPING,
    deliver_interrupt_again,
)


class Interrupted:
    """As if Ctrl-C came while it is being destroyed."""

    def __del__(self) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_in_a_destructor_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", deliver_interrupt_again)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            destroy_one()
    finally:
        signal.signal(signal.SIGINT, before)


def destroy_one() -> None:
    Interrupted()
    time.sleep(10)


WORK = """
import signal, sys, threading, time
from entrypoints.cli import interrupts
from entrypoints.cli.interrupts import Interruption, deliver_interrupt_again

interrupts.STOP_SECONDS = 600.0
told = threading.Event()

def stop():
    print("stop")
    told.set()

class Destroyed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

sys.unraisablehook = deliver_interrupt_again
signal.signal(signal.SIGINT, signal.default_int_handler)
with Interruption(stop, lambda code: print("leave", code)):
    try:
        Destroyed()
        time.sleep(20)
    except KeyboardInterrupt:
        told.wait(30)
        print("raised")
        # Time for the one that was delivered again to be taken for a second one.
        time.sleep(1)
sys.exit(7)
"""


def test_a_command_that_is_told_to_stop_ends_within_five_seconds() -> None:
    assert ECHO_SECONDS + STOP_SECONDS + LEAVE_SECONDS < 5


HANGING = """
import signal, time
from entrypoints.cli import interrupts

# Shells start background jobs with SIGINT ignored, and this process may inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
interrupts.STOP_SECONDS = 600.0
with interrupts.Interruption(lambda: None, lambda code: print("leave", code)):
    try:
        print("working", flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        pass
    time.sleep(600)
"""


@pytest.mark.full_suite
def test_a_second_interrupt_ends_at_once_what_does_not_end_by_itself() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HANGING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as hanging:
        assert hanging.stdout is not None
        assert hanging.stderr is not None
        assert hanging.stdout.readline() == "working\n"
        hanging.send_signal(signal.SIGINT)
        assert STOPPING in hanging.stderr.readline()
        hanging.send_signal(signal.SIGINT)
        out, _ = hanging.communicate(timeout=60)

    assert (hanging.returncode, out) == (130, "leave 130\n")


@pytest.mark.full_suite
def test_an_interrupt_that_is_delivered_again_does_not_count_as_a_second_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORK], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 7, done
    assert sorted(done.stdout.split()) == ["raised", "stop"]
    assert STOPPING in done.stderr
