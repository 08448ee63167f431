"""A function that does what its input says, good or bad, for children to import by path."""

import logging
import os
import re
import signal
import sys
import time
import warnings
from pathlib import Path

from penstock.documents import Fault
from penstock.errors import ConfigurationError, DocumentFault, ErrorClass

PATH = f"{__name__}:obey"


def obey(text: str, *, greeting: str = "done") -> str | Fault:
    order, _, argument = text.partition(" ")
    if order == "hang":
        _hang_holding_the_interpreter_lock(argument)
    elif order == "crash":
        crash()
    elif order == "eat":
        return str(len(bytearray(64 * 1024**3)))
    elif order == "raise":
        raise ValueError("bad day")
    elif order == "refuse":
        raise DocumentFault(ErrorClass.UNSUPPORTED, "not this one")
    elif order == "return":
        return Fault(ErrorClass.EMPTY, "nothing in it")
    elif order == "misconfigure":
        raise ConfigurationError("a setting is wrong")
    elif order == "shout":
        _shout()
    elif order == "main":
        return str(getattr(sys.modules["__main__"], "__file__", "no main module"))
    elif order == "blocked":
        return str(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    elif order == "loaded":
        return str(argument in sys.modules)
    return f"{greeting} {argument or order} by {os.getpid()}"


def crash() -> None:
    """The library of the pool blames no input for a crash that it sees before it has read that the
    input was begun, which a busy machine may delay."""
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGSEGV)


def _hang_holding_the_interpreter_lock(pid_file: str) -> None:
    if pid_file:
        Path(pid_file).write_text(str(os.getpid()))
    if re.match(r"(a+)+$", "a" * 60 + "b"):
        time.sleep(0)


def _shout() -> None:
    print("noise on stdout", flush=True)  # noqa: T201
    print("noise on stderr", file=sys.stderr, flush=True)  # noqa: T201
    os.write(2, b"noise from C\n")
    logging.getLogger("lxml").error("noise from a logger")
    warnings.warn("noise from a warning", stacklevel=1)
