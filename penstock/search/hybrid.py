"""The search people use: text, vectors, or both fused by rank."""

from collections.abc import Callable, Sequence

import sqlalchemy as sa

from penstock.search.fulltext import search_text
from penstock.search.nearest import search_vectors
from penstock.search.query import Filters, Found, Hit, Mode
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
        rankings.append(search_text(tx, query, filters, limit * _DEPTH))
    if mode in ("hybrid", "vector"):
        vector, identity = embed(query)
        rankings.append(search_vectors(tx, vector, identity, filters, limit * _DEPTH))
    best = _fuse(rankings)[:limit] if len(rankings) > 1 else rankings[0][:limit]
    return _as_hits(tx, best)


def _fuse(rankings: Sequence[Sequence[Found]]) -> list[Found]:
    scores: dict[int, float] = {}
    snippets: dict[int, str] = {}
    for ranking in rankings:
        for place, found in enumerate(ranking, start=1):
            scores[found.seq] = scores.get(found.seq, 0.0) + 1.0 / (_FUSION + place)
            if found.snippet:
                snippets[found.seq] = found.snippet
    ordered = sorted(scores, key=lambda seq: (-scores[seq], seq))
    return [Found(seq, scores[seq], snippets.get(seq)) for seq in ordered]


def _as_hits(tx: Tx, found: Sequence[Found]) -> list[Hit]:
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
            Hit(row.id, row.title or row.external_id, row.url, round(one.score, 6), snippet)
        )
    return hits
