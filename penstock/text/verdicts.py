"""What is said about a document that could not be read, or whose child process ended."""

import signal
from contextlib import suppress

from penstock.documents import Fault, RawDocument
from penstock.errors import ErrorClass


def timeout_fault(document: RawDocument, seconds: float) -> Fault:
    return Fault(
        ErrorClass.TIMEOUT,
        f"{document.name}: extracting its text was stopped after {seconds:g} s",
    )


def crash_fault(document: RawDocument, exit_code: int | None) -> Fault:
    return Fault(
        ErrorClass.UNKNOWN,
        f"{document.name}: the process extracting its text {_describe_exit(exit_code)}",
    )


def oversize_fault(document: RawDocument, most_bytes: int) -> Fault:
    return Fault(
        ErrorClass.TOO_LARGE,
        f"{document.name}: {len(document.content)} bytes, more than the {most_bytes} that can be "
        "extracted in the memory of a child process",
    )


def restart_fault(document: RawDocument) -> Fault:
    return Fault(
        ErrorClass.UNKNOWN,
        f"{document.name}: the processes extracting text ended several times before its turn",
    )


def _describe_exit(exit_code: int | None) -> str:
    if exit_code == -getattr(signal, "SIGKILL", 9):
        return "was killed (SIGKILL), probably because the machine ran out of memory"
    if exit_code is not None and exit_code < 0:
        with suppress(ValueError):
            return f"crashed ({signal.Signals(-exit_code).name})"
    return f"ended with exit code {exit_code}"
