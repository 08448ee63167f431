"""The terms a text keeps coming back to."""

import re
from collections import Counter
from itertools import pairwise

from penstock.llm.rules.vocabulary import read_words

_MAX_TOPICS = 6
_WORD = re.compile(r"[^\W\d_][^\W_]*(?:[-'’][^\W_]+)*")


def find_topics(text: str, title: str, labels: dict[str, str]) -> tuple[list[str], float]:
    """Stated keywords, else terms that recur; with how well they are supported."""
    stated = labels.get("keywords") or labels.get("topics") or labels.get("tags")
    if stated:
        return [item.strip(" .") for item in re.split(r"[,;·|]", stated) if item.strip(" .")], 1.0
    words = _WORD.findall(text.lower())
    in_title = frozenset(word.lower() for word in _WORD.findall(title))
    topics = _choose(_scores(words, in_title))
    return topics, min(0.8, len(topics) / _MAX_TOPICS)


def _scores(words: list[str], in_title: frozenset[str]) -> dict[str, float]:
    """Recurring words and pairs; a pair outweighs its words, the title counts double."""
    telling = {word for word in set(words) if _is_telling(word)}
    singles = Counter(word for word in words if word in telling)
    pairs = Counter(pair for pair in pairwise(words) if telling.issuperset(pair))
    scores = {word: float(count) for word, count in singles.items()}
    scores.update((" ".join(pair), 1.8 * count) for pair, count in pairs.items())
    return {
        term: score * (1 + _share_in_title(term, in_title))
        for term, score in scores.items()
        if score >= 2
    }


def _share_in_title(term: str, in_title: frozenset[str]) -> float:
    parts = term.split()
    return sum(part in in_title for part in parts) / len(parts)


def _is_telling(word: str) -> bool:
    return len(word) > 3 and word not in read_words("stop_words") and not word.endswith("ly")


def _choose(scores: dict[str, float]) -> list[str]:
    """The best terms, none of which says what another already says."""
    chosen: list[str] = []
    for term in sorted(scores, key=lambda term: (-scores[term], term)):
        stems = {word.rstrip("s") for word in term.split()}
        said = {word.rstrip("s") for other in chosen for word in other.split()}
        if not stems & said:
            chosen.append(term)
        if len(chosen) == _MAX_TOPICS:
            break
    return chosen
