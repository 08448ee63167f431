"""How children are started: from a warm fork server, without the program's main module."""

import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import spawn
from multiprocessing.context import BaseContext
from threading import local
from typing import Any

CHILD = "penstock.isolation.child"

_starting = local()
_complete_preparation = spawn.get_preparation_data


def child_context(warmup: Sequence[str]) -> BaseContext:
    """A multiprocessing context for children of a program that has threads.

    Such a program must not fork, so a single-threaded fork server does; where there is none
    (Windows), children are spawned. The server is one for the whole program, so it imports what
    the first to need it asks for; children import the rest themselves.
    """
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    spawn.get_preparation_data = _preparation_data
    context = _MainlessContext()
    context.set_forkserver_preload([CHILD, *warmup])
    return context


if sys.platform != "win32":
    from multiprocessing.context import ForkServerContext, ForkServerProcess

    class _MainlessProcess(ForkServerProcess):
        def start(self) -> None:
            with _leaving_main_out():
                super().start()

    class _MainlessContext(ForkServerContext):
        Process = _MainlessProcess


@contextmanager
def _leaving_main_out() -> Iterator[None]:
    _starting.mainless = True
    try:
        yield
    finally:
        _starting.mainless = False


def _preparation_data(name: str) -> dict[str, Any]:
    """As multiprocessing prepares a child, less the order to import the main module again.

    Under a Prefect worker that import costs seconds and a hundred megabytes for each child, and
    multiprocessing has no option to leave it out. Processes others start are not touched.
    """
    data = _complete_preparation(name)
    if getattr(_starting, "mainless", False):
        data.pop("init_main_from_name", None)
        data.pop("init_main_from_path", None)
    return data
