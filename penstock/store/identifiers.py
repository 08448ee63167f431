"""Identifiers for nodes: unique, and in the order of their making, so indexes stay compact."""

import os
import time
import uuid


def new_node_id() -> str:
    """A UUID of version 7 (RFC 9562): milliseconds since 1970, then random bits."""
    milliseconds = time.time_ns() // 1_000_000
    value = int.from_bytes(milliseconds.to_bytes(6, "big") + os.urandom(10), "big")
    value = value & ~(0xF << 76) | (0x7 << 76)
    value = value & ~(0x3 << 62) | (0x2 << 62)
    return str(uuid.UUID(int=value))
