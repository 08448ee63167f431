"""The search people use: text, vectors, or both fused by rank."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain

import sqlalchemy as sa

from penstock.search.fulltext import search_text
from penstock.search.nearest import search_vectors
from penstock.search.query import Filters, Found, Hit, Match, Mode, Way
from penstock.store.database import Tx
from penstock.store.schema import nodes, texts

# Reciprocal rank fusion's usual constant: how much a first place counts over a tenth.
_FUSION = 60
_SNIPPET_CHARS = 200
_DEPTH = 5


def search(
    tx: Tx,
    query: str,
    filters: Filters,
    *,
    mode: Mode,
    limit: int,
    embed: Callable[[str], tuple[bytes, str]],
) -> list[Hit]:
    """Hits, best first. `embed` gives the query's vector and its identity; text never calls it."""
    rankings: list[list[Found]] = []
    if mode in ("hybrid", "text"):
        rankings.append(say_why("text", search_text(tx, query, filters, limit * _DEPTH)))
    if mode in ("hybrid", "vector"):
        vector, identity = embed(query)
        nearest = search_vectors(tx, vector, identity, filters, limit * _DEPTH)
        rankings.append(say_why("vector", nearest))
    best = _fuse(rankings)[:limit] if len(rankings) > 1 else rankings[0][:limit]
    return as_hits(tx, best)


def say_why(way: Way, ranking: Iterable[Found]) -> list[Found]:
    """The same, each with its place in this ranking."""
    return [
        replace(found, why=(Match(way, place, _rounded(found.score)),))
        for place, found in enumerate(ranking, start=1)
    ]


def _fuse(rankings: Sequence[Sequence[Found]]) -> list[Found]:
    """One ranking out of several: a node scores by its place in each that found it."""
    together: dict[int, Found] = {}
    for found in chain.from_iterable(rankings):
        known = together.get(found.seq, Found(found.seq, 0.0))
        together[found.seq] = Found(
            found.seq,
            known.score + sum(1.0 / (_FUSION + match.place) for match in found.why),
            known.snippet or found.snippet,
            known.why + found.why,
        )
    return sorted(together.values(), key=lambda found: (-found.score, found.seq))


def as_hits(tx: Tx, found: Sequence[Found]) -> list[Hit]:
    """What was found, in its order, as it is shown."""
    opening = sa.func.substr(texts.c.body, 1, _SNIPPET_CHARS).label("opening")
    query = (
        sa.select(nodes.c.seq, nodes.c.id, nodes.c.title, nodes.c.external_id, nodes.c.url, opening)
        .outerjoin(texts, texts.c.seq == nodes.c.seq)
        .where(nodes.c.seq.in_([one.seq for one in found]))
    )
    rows = {row.seq: row for row in tx.execute(query)}
    hits = []
    for one in found:
        row = rows[one.seq]
        snippet = " ".join((one.snippet or row.opening or "").split())
        hits.append(
            Hit(
                row.id,
                row.title or row.external_id,
                row.url,
                _rounded(one.score),
                snippet,
                one.why,
            )
        )
    return hits


def _rounded(score: float) -> float:
    return round(score, 6)
