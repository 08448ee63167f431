"""Industries, scored by the words that belong to them."""

from collections import Counter, defaultdict
from functools import cache

from penstock.llm.rules.layout import Reading
from penstock.llm.rules.phrases import PhraseTable
from penstock.llm.rules.vocabulary import read_table

_MIN_SCORE = 2.0
_SHARE_OF_BEST = 0.34


def find_industries(reading: Reading) -> list[str]:
    """Industries with enough different signs, strongest first."""
    signs: dict[str, Counter[str]] = defaultdict(Counter)
    for hit in _keyword_table().find(reading.lowered):
        signs[hit.name][reading.lowered[hit.start : hit.end]] += 1
    scores = {name: _score(words) for name, words in signs.items()}
    best = max(scores.values(), default=0.0)
    kept = [name for name, s in scores.items() if s >= max(_MIN_SCORE, best * _SHARE_OF_BEST)]
    return sorted(kept, key=lambda name: -scores[name])


def _score(words: Counter[str]) -> float:
    """A second sign says more than the same word again."""
    return len(words) + 0.5 * sum(min(count - 1, 2) for count in words.values())


@cache
def _keyword_table() -> PhraseTable:
    table = read_table("industries")
    return PhraseTable({word: name for name, words in table.items() for word in words})
