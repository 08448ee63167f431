"""How much of an article was found, and how little else: F1 over shingles of four words.

The measure of the public article-extraction-benchmark (https://github.com/scrapinghub): precision
and recall of each page over its shingles, counted as often as they occur, averaged over the pages.
"""

import re
from collections import Counter
from collections.abc import Iterable

SHINGLE_WORDS = 4
_WORD = re.compile(r"\w+")


def score_f1(pairs: Iterable[tuple[str, str]]) -> float:
    """F1 over (true text, found text) of all pages."""
    scores = [_precision_recall(_shingles(true), _shingles(found)) for true, found in pairs]
    precision = sum(one for one, _ in scores) / len(scores)
    recall = sum(one for _, one in scores) / len(scores)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _shingles(text: str) -> Counter[tuple[str, ...]]:
    words = _WORD.findall(text)
    last = max(len(words) - SHINGLE_WORDS, 0) if words else -1
    return Counter(tuple(words[i : i + SHINGLE_WORDS]) for i in range(last + 1))


def _precision_recall(
    true: Counter[tuple[str, ...]], found: Counter[tuple[str, ...]]
) -> tuple[float, float]:
    if true == found:
        return 1.0, 1.0
    common = (true & found).total()
    return common / max(found.total(), 1), common / max(true.total(), 1)
