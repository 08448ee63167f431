"""The one factory of Redis clients."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redis import Redis


def build_redis_client(url: str, timeout_seconds: float = 5.0) -> "Redis":
    """A client that answers in text and does not wait for ever."""
    from redis import Redis

    return Redis.from_url(
        url,
        decode_responses=True,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=timeout_seconds,
    )
