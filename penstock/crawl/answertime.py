"""How long an answer may take: each wait for its bytes, and the whole of it."""

import time

import httpcore

# A server that sends a byte now and then never times out; the whole answer does after this many.
ANSWER_TIMEOUTS = 10


def answer_ends(read_seconds: float) -> float:
    """When an answer that is asked for now has to be there."""
    return time.monotonic() + ANSWER_TIMEOUTS * read_seconds


def patience(ends: float, read_seconds: float) -> float:
    """How long to wait for the next bytes of an answer that has to be there at `ends`."""
    left_seconds = ends - time.monotonic()
    if left_seconds <= 0:
        limit_seconds = ANSWER_TIMEOUTS * read_seconds
        raise httpcore.ReadTimeout(f"not all of it came within {limit_seconds:g} s")
    return min(left_seconds, read_seconds)
