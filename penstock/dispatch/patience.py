"""A bound for calls to Redis as a whole: a client's own timeout holds for each of their steps."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def call_within(seconds: float, work: Callable[[], T]) -> T:
    """What it gives, or `TimeoutError`; what is late goes on by itself and is not heard any more.

    Looking a name up, connecting, greeting and asking may each take nearly the client's timeout.
    """
    future: Future[T] = Future()
    thread = threading.Thread(
        target=_fulfil, args=(future, work), name="penstock-redis", daemon=True
    )
    thread.start()
    try:
        return future.result(timeout=seconds)
    except TimeoutError as error:
        raise TimeoutError(f"no answer in {seconds:g} s") from error


def _fulfil(future: "Future[T]", work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
