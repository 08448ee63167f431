"""What runs inside a child process: chunks of inputs in, their results or faults out."""

import gc
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, cast

from penstock.documents import Fault
from penstock.errors import ConfigurationError, DocumentFault
from penstock.isolation.verdicts import error_fault, memory_fault


def prepare_child(memory_bytes: int, warmup: Sequence[str]) -> None:
    """Make this process quiet, bounded, warm, and unable to outlive its parent."""
    _die_with_parent()
    _silence()
    # A stuck C library never gets to a Python signal handler; the default action needs none.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _warm_up(warmup)
    gc.freeze()
    _limit_memory(memory_bytes)


def run_chunk(
    inputs: Sequence[tuple[str, Any]], function: str, options: Mapping[str, Any], doing: str
) -> list[Any]:
    """One outcome per named input, in order; no exception of an input leaves this function."""
    call = load_function(function)
    return [_run_one(name, one, call, options, doing) for name, one in inputs]


@cache
def load_function(path: str) -> Callable[..., Any]:
    """The function at `module:function`."""
    module, _, name = path.partition(":")
    try:
        return cast(Callable[..., Any], getattr(import_module(module), name))
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"no function can be loaded from {path!r}: {error}") from error


def _run_one(
    name: str, one: Any, call: Callable[..., Any], options: Mapping[str, Any], doing: str
) -> Any:
    try:
        return call(one, **options)
    except DocumentFault as error:
        return Fault.of(error)
    except ConfigurationError:
        raise
    except MemoryError:
        return memory_fault(name, doing)
    except Exception as error:
        return error_fault(name, error)


def _warm_up(modules: Sequence[str]) -> None:
    for module in modules:
        # What cannot be imported is reported later, by the input that needs it.
        with suppress(Exception):
            import_module(module)


def _die_with_parent() -> None:
    """Ask the kernel for a fatal signal when the parent's end of our pipe closes.

    The parent of a fork server's child is the fork server, so a parent-death signal would come
    from the wrong process, and a watching thread would not run while a C library holds the GIL.
    """
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is None or sys.platform == "win32":
        return
    import fcntl
    import select

    pipe = parent.sentinel
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([pipe], [], [], 0)[0]:
        os._exit(1)


def _silence() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _limit_memory(memory_bytes: int) -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, hard))
