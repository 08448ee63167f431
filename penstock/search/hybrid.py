"""Search by text, by vectors, or by both fused by rank; and similar documents.

Full text is FTS5 on SQLite and tsvector on Postgres; first all words, then any of them.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import sqlalchemy as sa

from penstock.search.nodes import valid_node_id
from penstock.search.query import HIT_END, HIT_START, Filters, Found, Hit, Match, Mode, Way
from penstock.search.vectors import active_identity, search_vectors
from penstock.store.database import Database, Tx
from penstock.store.schema import embeddings, nodes, texts

# The usual constant of reciprocal rank fusion.
_FUSION = 60
_SNIPPET_CHARS = 200
_DEPTH = 5
# A whole page pasted into the search box would make an endless statement.
MOST_TERMS = 64
_TERM = re.compile(r'"([^"]+)"|(\S+)')
# A word in the title says more about a document than one in its body.
_SQLITE_RANK = "bm25(texts_fts, 4.0, 1.0)"
_SNIPPET = f"snippet(texts_fts, 1, '{HIT_START}', '{HIT_END}', ' … ', 24)"
_HEADLINE = f"StartSel={HIT_START}, StopSel={HIT_END}, MaxWords=28, MinWords=12, MaxFragments=2"


@dataclass(frozen=True, slots=True)
class Searcher:
    """Search over one database."""

    database: Database
    embed: Callable[[str, str | None], tuple[bytes, str]]
    """Gives the vector of a query and its identity, which should be the one in use, if any."""

    def search(self, query: str, filters: Filters, mode: Mode, limit: int) -> list[Hit]:
        """Documents, best first."""
        with self.database.read() as tx:
            # Until the vectors of a new model are complete, the old ones are in use.
            def embed(text: str) -> tuple[bytes, str]:
                return self.embed(text, active_identity(tx))

            return search(tx, query, filters, mode=mode, limit=limit, embed=embed)


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


def search_text(tx: Tx, query: str, filters: Filters, limit: int) -> list[Found]:
    """Best first. Documents with every word; only when there are none, those with some."""
    # Words and quoted phrases, without anything that is syntax to a search engine.
    parts = [phrase or word for phrase, word in _TERM.findall(query)]
    cleaned = [" ".join(re.findall(r"\w+", part)) for part in parts]
    terms = list(dict.fromkeys(term for term in cleaned if term))[:MOST_TERMS]
    if not terms:
        return []
    find = _find_postgres if tx.is_postgres else _find_sqlite
    return find(tx, terms, filters, limit, every=True) or find(
        tx, terms, filters, limit, every=False
    )


def _find_sqlite(
    tx: Tx, terms: Sequence[str], filters: Filters, limit: int, *, every: bool
) -> list[Found]:
    match = (" AND " if every else " OR ").join(f'"{term}"' for term in terms)
    fts = sa.table("texts_fts", sa.column("rowid"))
    is_match = sa.text("texts_fts MATCH :match").bindparams(match=match)
    # Matches are found before they are filtered; otherwise SQLite would look for a rare word in one
    # document of the tenant after the other.
    matching = (
        sa.select(fts.c.rowid.label("seq"), sa.literal_column(_SQLITE_RANK).label("rank"))
        .where(is_match)
        .cte("matching")
        .prefix_with("MATERIALIZED")
    )
    best = (
        sa.select(matching.c.seq, matching.c.rank)
        .join(nodes, nodes.c.seq == matching.c.seq)
        .where(*filters.conditions(tx))
        .order_by(matching.c.rank, matching.c.seq)
        .limit(limit)
    )
    found = tx.execute(best).all()
    # Snippets of the shown documents only: each takes as long as reading its document.
    snippet = sa.select(fts.c.rowid, sa.literal_column(_SNIPPET).label("snippet"))
    shown = snippet.where(is_match, fts.c.rowid.in_([row.seq for row in found]))
    snippets = {row.rowid: row.snippet for row in tx.execute(shown)} if found else {}
    # FTS5 ranks downwards: more negative is better.
    return [Found(row.seq, -row.rank, snippets[row.seq]) for row in found]


def _find_postgres(
    tx: Tx, terms: Sequence[str], filters: Filters, limit: int, *, every: bool
) -> list[Found]:
    phrases = [sa.func.phraseto_tsquery("english", term) for term in terms]
    wanted: sa.ColumnElement[str] = phrases[0]
    for phrase in phrases[1:]:
        wanted = wanted.op("&&" if every else "||")(phrase)
    search: sa.ColumnClause[str] = sa.literal_column("texts.search")
    rank = sa.func.ts_rank_cd(search, wanted, 1)
    best = (
        sa.select(nodes.c.seq, rank.label("rank"), texts.c.body)
        .join(texts, texts.c.seq == nodes.c.seq)
        .where(search.op("@@")(wanted), *filters.conditions(tx))
        .order_by(rank.desc(), nodes.c.seq)
        .limit(limit)
        .subquery()
    )
    snippet = sa.func.ts_headline("english", sa.func.left(best.c.body, 100_000), wanted, _HEADLINE)
    statement = sa.select(best.c.seq, best.c.rank, snippet.label("snippet"))
    rows = tx.execute(statement.order_by(best.c.rank.desc(), best.c.seq))
    return [Found(row.seq, row.rank, row.snippet) for row in rows]


def say_why(way: Way, ranking: Iterable[Found]) -> list[Found]:
    """The same results, each with its place in this ranking."""
    return [
        replace(found, why=(Match(way, place, round(found.score, 6)),))
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
        title = row.title or row.external_id
        hits.append(Hit(row.id, title, row.url, round(one.score, 6), snippet, one.why))
    return hits


def similar_nodes(tx: Tx, tenant_id: str, node_id: str, limit: int = 5) -> list[Hit]:
    """The nearest by the node's own vector, among those that search uses; none if it has none."""
    identity = active_identity(tx)
    if identity is None:
        return []
    own = (
        sa.select(embeddings.c.seq, embeddings.c.vector)
        .join(nodes, nodes.c.seq == embeddings.c.seq)
        .where(nodes.c.tenant_id == tenant_id, nodes.c.id == valid_node_id(node_id))
        .where(embeddings.c.identity == identity)
    )
    row = tx.execute(own).first()
    if row is None:
        return []
    # One more: the node itself is nearest to itself.
    nearest = search_vectors(tx, row.vector, identity, Filters(tenant_id), limit + 1)
    others = [found for found in nearest if found.seq != row.seq]
    return as_hits(tx, say_why("vector", others[:limit]))
