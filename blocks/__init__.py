"""Prefect blocks: described configuration, secrets, and one client factory each.

Registration looks only at the members of this module, so every block is one of them. The one that
needs prefect-aws, whose import takes half a second, is imported when it is asked for.
"""

from typing import TYPE_CHECKING, Any

from blocks.database import PenstockDatabase
from blocks.embedder import TextEmbedder
from blocks.groq import GroqModels
from blocks.local_server import use_local_server
from blocks.raw import LocalRawFolder
from blocks.redis import RedisServer

if TYPE_CHECKING:
    from blocks.part import ConfigurationPart
    from blocks.s3_raw import S3RawBucket

    ALL_BLOCKS: tuple[type[ConfigurationPart], ...]

__all__ = [
    "ALL_BLOCKS",
    "GroqModels",
    "LocalRawFolder",
    "PenstockDatabase",
    "RedisServer",
    "S3RawBucket",
    "TextEmbedder",
]


# Also for tasks and flows, which import this package.
use_local_server()


def __getattr__(name: str) -> Any:
    if name not in {"ALL_BLOCKS", "S3RawBucket"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from blocks.s3_raw import S3RawBucket

    everything = (
        PenstockDatabase,
        LocalRawFolder,
        S3RawBucket,
        GroqModels,
        RedisServer,
        TextEmbedder,
    )
    return everything if name == "ALL_BLOCKS" else S3RawBucket


def __dir__() -> list[str]:
    return [*globals(), "ALL_BLOCKS", "S3RawBucket"]
