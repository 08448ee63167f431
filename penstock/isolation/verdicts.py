"""What is said about an input that got no result, or whose child process ended."""

import signal
from contextlib import suppress

from penstock.documents import Fault
from penstock.errors import ErrorClass


def timeout_fault(name: str, doing: str, seconds: float) -> Fault:
    return Fault(ErrorClass.TIMEOUT, f"{name}: {doing} was stopped after {seconds:g} s")


def crash_fault(name: str, doing: str, exit_code: int | None) -> Fault:
    return Fault(ErrorClass.UNKNOWN, f"{name}: the process {doing} {_describe_exit(exit_code)}")


def memory_fault(name: str, doing: str) -> Fault:
    return Fault(
        ErrorClass.TOO_LARGE,
        f"{name}: {doing} needs more memory than a child process may use",
    )


def error_fault(name: str, error: Exception) -> Fault:
    return Fault(ErrorClass.UNKNOWN, f"{name}: {type(error).__name__}: {error}")


def oversize_fault(name: str, size_bytes: int, most_bytes: int) -> Fault:
    return Fault(
        ErrorClass.TOO_LARGE,
        f"{name}: {size_bytes} bytes, more than the {most_bytes} that can be extracted in the "
        "memory of a child process",
    )


def restart_fault(name: str, doing: str) -> Fault:
    return Fault(
        ErrorClass.UNKNOWN,
        f"{name}: the processes {doing} ended several times before its turn",
    )


def _describe_exit(exit_code: int | None) -> str:
    if exit_code == -getattr(signal, "SIGKILL", 9):
        return "was killed (SIGKILL), probably because the machine ran out of memory"
    if exit_code is not None and exit_code < 0:
        with suppress(ValueError):
            return f"crashed ({signal.Signals(-exit_code).name})"
    return f"ended with exit code {exit_code}"
