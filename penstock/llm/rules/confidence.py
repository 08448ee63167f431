"""How far the rules trust what they found."""

import re
from collections.abc import Mapping

CEILING = 0.95
"""Rules are never certain."""
UNUSABLE = 0.5
"""The most an answer without its required fields can claim."""

_SAMPLE_CHARS = 1500
_WORD = re.compile(r"[^\W\d_]+")
_COMMON_WORD = re.compile(
    r"\b(?:the|and|of|in|to|for|with|an?|on|as|by|at|from|is|are|we|you|our|your|that|this|or|it|be"
    r"|was|were|will|using|have|has)\b"
)
_USUAL_SHARE = 0.12


def combine(supports: Mapping[str, tuple[float, float]]) -> float:
    """The weighted mean of (weight, support) pairs."""
    total = sum(weight for weight, _ in supports.values())
    return sum(weight * support for weight, support in supports.values()) / total


def settle(supports: Mapping[str, tuple[float, float]], text: str, *, usable: bool) -> float:
    """A confidence of two digits for an answer with these supports."""
    value = combine(supports) * (0.5 + 0.5 * english_share(text))
    return round(min(value, CEILING if usable else UNUSABLE), 2)


def english_share(text: str) -> float:
    """1 for running English, towards 0 for other languages, tables and noise."""
    sample = text[:_SAMPLE_CHARS].lower()
    words = len(_WORD.findall(sample))
    if not words:
        return 0.0
    common = len(_COMMON_WORD.findall(sample)) / words
    return min(1.0, common / _USUAL_SHARE)
