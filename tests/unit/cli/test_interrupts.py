"""Ctrl-C reaches a command wherever it is."""

import signal
import sys
import time

import pytest

from entrypoints.cli.main import deliver_interrupt_again


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
