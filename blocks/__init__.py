"""Prefect blocks: described configuration, secrets, and one client factory each.

Registration looks only at the members of this module, so every block is re-exported here.
"""

from blocks.database import PenstockDatabase
from blocks.embedder import TextEmbedder
from blocks.groq import GroqModels
from blocks.raw import LocalRawFolder
from blocks.redis import RedisServer

ALL_BLOCKS = (PenstockDatabase, LocalRawFolder, GroqModels, RedisServer, TextEmbedder)

__all__ = [
    "ALL_BLOCKS",
    "GroqModels",
    "LocalRawFolder",
    "PenstockDatabase",
    "RedisServer",
    "TextEmbedder",
]
