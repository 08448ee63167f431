"""What runs inside a child process, and how children are started."""

import gc
import logging
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from multiprocessing import spawn
from multiprocessing.context import BaseContext
from threading import local
from typing import Any, cast

from penstock import failpoints
from penstock.documents import Fault
from penstock.errors import ConfigurationError, DocumentFault, ErrorClass


def crash_fault(name: str, doing: str, exit_code: int | None) -> Fault:
    ending = f"ended with exit code {exit_code}"
    if exit_code == -getattr(signal, "SIGKILL", 9):
        ending = "was killed (SIGKILL), probably because the machine ran out of memory"
    elif exit_code is not None and exit_code < 0:
        with suppress(ValueError):
            ending = f"crashed ({signal.Signals(-exit_code).name})"
    return Fault(ErrorClass.UNKNOWN, f"{name}: the process {doing} {ending}")


def prepare_child(memory_bytes: int, warmup: Sequence[str]) -> None:
    """Silence this process, limit its memory, import `warmup`, and let it end with its parent."""
    _die_with_parent()
    _silence()
    if sys.platform != "win32":
        # Blocked by the fork server; by now it is ignored, and programs that are started here may
        # want it.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # A stuck C library never gets to a Python signal handler; the default action needs none.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for module in warmup:
        # What cannot be imported is reported later, by the input that needs it.
        with suppress(Exception):
            import_module(module)
    gc.freeze()
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, hard))


def run_chunk(
    inputs: Sequence[tuple[str, Any]],
    function: str,
    options: Mapping[str, Any],
    doing: str,
    faults: str | None,
) -> list[Any]:
    """One outcome per named input, in order; no exception of an input leaves this function."""
    failpoints.follow(faults)
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
        message = f"{name}: {doing} needs more memory than a child process may use"
        return Fault(ErrorClass.TOO_LARGE, message)
    except Exception as error:
        return Fault(ErrorClass.UNKNOWN, f"{name}: {type(error).__name__}: {error}")


def _die_with_parent() -> None:
    """Ask the kernel for a fatal signal when the parent's end of the pipe closes.

    The parent of a fork server's child is the fork server, so a parent-death signal would come
    from the wrong process, and a watching thread would not run while a C library holds the GIL.
    """
    parent = multiprocessing.parent_process()
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
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


CHILD = "penstock.isolation.child"

_starting = local()
_complete_preparation = spawn.get_preparation_data


def child_context(warmup: Sequence[str]) -> BaseContext:
    """A multiprocessing context for children of a program that has threads.

    A program with threads must not fork, so a single-threaded fork server does; on Windows, which
    has none, children are spawned. The whole program has one server, so it imports the `warmup` of
    the first pool; children import the rest themselves.
    """
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    spawn.get_preparation_data = _preparation_data
    context = _MainlessContext()
    context.set_forkserver_preload([CHILD, *warmup])
    return context


def start_fork_server(warmup: Sequence[str]) -> None:
    """Start the server and return: it imports the libraries while its caller goes on."""
    child_context(warmup)
    if sys.platform != "win32":
        _start_fork_server()


if sys.platform != "win32":
    from multiprocessing import forkserver, resource_tracker
    from multiprocessing.context import ForkServerContext, ForkServerProcess

    def _start_fork_server() -> None:
        """Start the server if none runs, with SIGINT blocked: it ignores Ctrl-C itself, but only
        once all is imported, and until then would end with a traceback."""
        # First, since starting it unblocks SIGINT.
        resource_tracker.ensure_running()
        # The mask is that of this thread alone, and a new process inherits it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    class _MainlessProcess(ForkServerProcess):
        def start(self) -> None:
            _start_fork_server()
            _starting.without_main = True
            try:
                super().start()
            finally:
                _starting.without_main = False

    class _MainlessContext(ForkServerContext):
        Process = _MainlessProcess


def _preparation_data(name: str) -> dict[str, Any]:
    """The data with which multiprocessing starts a child, without its main module.

    Under a Prefect worker, importing that again costs seconds and a hundred megabytes per child,
    and multiprocessing has no option against it. Only our own children are affected.
    """
    data = _complete_preparation(name)
    if getattr(_starting, "without_main", False):
        data.pop("init_main_from_name", None)
        data.pop("init_main_from_path", None)
    return data
