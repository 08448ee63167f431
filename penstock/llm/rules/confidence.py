"""How far the rules trust what they found."""

from collections.abc import Mapping

from penstock.llm.rules.vocabulary import read_words

CEILING = 0.95
"""Rules are never certain."""
UNUSABLE = 0.5
"""The most an answer without its required fields can claim."""

_SAMPLE_CHARS = 1500
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
    words = [word for word in text[:_SAMPLE_CHARS].lower().split() if len(word) > 1]
    if not words:
        return 0.0
    common = sum(map(read_words("common_words").__contains__, words)) / len(words)
    return min(1.0, common / _USUAL_SHARE)
