"""The Redis that wakes workers and holds counters."""

from typing import TYPE_CHECKING, Any

from pydantic import Field, SecretStr

from blocks.part import ConfigurationPart
from penstock.redis.client import build_redis_client

if TYPE_CHECKING:
    from redis import Redis


class RedisServer(ConfigurationPart):
    """Redis 6.2+ or Valkey."""

    _block_type_name = "Penstock Redis"
    _block_type_slug = "penstock-redis"
    _description = "The Redis or Valkey server beside the database."

    url: SecretStr = Field(description="Its address, such as redis://:password@host:6379/0")

    def overrides(self) -> dict[str, Any]:
        return {"redis_url": self.url}

    def get_client(self) -> "Redis":
        return build_redis_client(self.url.get_secret_value())
