"""What is known of a Redis client: where it leads, how long it waits, and what its errors mean."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import ServiceError

if TYPE_CHECKING:
    from redis import Redis

_DEFAULT_SECONDS = 5.0


def read_timeout(client: "Redis") -> float:
    """The seconds it waits for an answer."""
    seconds = client.connection_pool.connection_kwargs.get("socket_timeout")
    return float(seconds or _DEFAULT_SECONDS)


def read_address(client: "Redis") -> str:
    """Where it leads, without user and password."""
    told = client.connection_pool.connection_kwargs
    if "path" in told:
        return f"unix://{told['path']}"
    return f"redis://{told.get('host', 'localhost')}:{told.get('port', 6379)}/{told.get('db', 0)}"


def copy_client(client: "Redis", timeout_seconds: float) -> "Redis":
    """One to the same place that can also read bytes which are no text, and waits so long."""
    from redis import ConnectionPool, Redis

    pool = client.connection_pool
    told = pool.connection_kwargs | {
        "encoding_errors": "surrogateescape",
        "socket_timeout": timeout_seconds,
    }
    return Redis.from_pool(ConnectionPool(connection_class=pool.connection_class, **told))


@contextmanager
def explained(client: "Redis") -> Iterator[None]:
    """Errors of Redis become ours, with what to do about them."""
    from redis.exceptions import RedisError

    try:
        yield
    except (RedisError, TimeoutError) as error:
        raise ServiceError(
            f"Redis at {read_address(client)} cannot be used ({error}): check REDIS_URL and the "
            "server; `penstock doctor` looks at both"
        ) from error
