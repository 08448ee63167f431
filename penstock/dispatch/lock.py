"""A lock in Redis: it ends by itself, and only who holds it can let it go."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from penstock.dispatch.scripts import run_script

if TYPE_CHECKING:
    from redis import Redis


@contextmanager
def try_lock(client: "Redis", key: str, expiry_seconds: int) -> Iterator[bool]:
    """Whether it was free; if so, it is held inside the block."""
    from redis.exceptions import RedisError

    token = uuid.uuid4().hex
    held = bool(client.set(key, token, nx=True, ex=expiry_seconds))
    try:
        yield held
    finally:
        if held:
            # It ends by itself; what went wrong inside the block says more.
            with suppress(RedisError):
                run_script(client, "release", [key, token])
