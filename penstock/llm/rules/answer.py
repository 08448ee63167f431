"""What the rules say about one text."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A profile's fields but the confidence, and the confidence."""

    fields: Mapping[str, Any]
    confidence: float
