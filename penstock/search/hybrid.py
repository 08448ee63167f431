"""Search by text, by vectors, or by both fused by rank; and similar documents.

Full text is FTS5 on SQLite and tsvector on Postgres; first all words, then any of them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import sqlalchemy as sa

from penstock.search.nodes import valid_node_id
from penstock.search.passages import show_passages
from penstock.search.query import (
    HIT_END,
    HIT_START,
    Filters,
    Found,
    Hit,
    Match,
    Mode,
    Scope,
    Way,
)
from penstock.search.vectors import active_identity, search_vectors
from penstock.store.database import Database, Tx
from penstock.store.schema import embeddings, nodes, texts

# The usual constant of reciprocal rank fusion.
_FUSION = 60
_SNIPPET_CHARS = 200
_DEPTH = 5
# Passages of a document that others are compared with.
_MOST_COMPARED = 8
# Ranking takes time for each match, on Postgres more. Of more matches than this, the newest of the
# tenant are ranked: what so many documents have says little about any of them. By `is_postgres`.
MOST_RANKED = {False: 20_000, True: 4_000}
# The share of documents from which on Postgres is not asked for all that match.
_EVERYWHERE = 0.25
_LARGEST = 2**63 - 1
# A whole page pasted into the search box would make an endless statement.
MOST_TERMS = 64
_TERM = re.compile(r'"([^"]+)"|(\S+)')
_SNIPPET = f"snippet(texts_fts, 1, '{HIT_START}', '{HIT_END}', ' … ', 24)"
_HEADLINE = f"StartSel={HIT_START}, StopSel={HIT_END}, MaxWords=28, MinWords=12, MaxFragments=2"


_FTS = sa.table("texts_fts", sa.column("rowid"))
_SEARCH: sa.ColumnClause[str] = sa.literal_column("texts.search")
# FTS5 ranks downwards: more negative is better. A word in the title says more about a document than
# one in its body.
_SCORE_SQLITE: sa.ColumnElement[float] = sa.literal_column("-bm25(texts_fts, 4.0, 1.0)").label(
    "score"
)
# What matches, best first, and the oldest document that was looked at, if not all that match were
# asked for.
Ranked = tuple[sa.Select[Any], int | None]


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
    words, scope = TextQuery.parse(query), Scope.look(tx, filters)
    if mode in ("hybrid", "text"):
        rankings.append(say_why("text", search_words(tx, words, scope, limit * _DEPTH)))
    if mode in ("hybrid", "vector"):
        vector, identity = embed(query)
        nearest = search_vectors(tx, vector, identity, scope, limit * _DEPTH)
        rankings.append(say_why("vector", nearest))
    best = _fuse(rankings)[:limit] if len(rankings) > 1 else rankings[0][:limit]
    with_words = [one.seq for one in best if any(match.way == "text" for match in one.why)]
    return as_hits(tx, best, read_snippets(tx, words, with_words), words.terms)


@dataclass(frozen=True, slots=True)
class TextQuery:
    """Words and quoted phrases, without anything that is syntax to a search engine."""

    terms: tuple[str, ...]
    every: bool = True
    """Whether a document must have all of them."""

    @classmethod
    def parse(cls, query: str) -> "TextQuery":
        parts = [phrase or word for phrase, word in _TERM.findall(query)]
        cleaned = [" ".join(re.findall(r"\w+", part)) for part in parts]
        return cls(tuple(dict.fromkeys(term for term in cleaned if term))[:MOST_TERMS])


def search_words(tx: Tx, query: TextQuery, scope: Scope, limit: int) -> list[Found]:
    """Best first. Documents with every word; only when there are none, those with some: first those
    with the rare ones among them."""
    found = search_text(tx, query, scope, limit)
    if found or len(query.terms) < 2:
        return found
    any_word = replace(query, every=False)
    for some in (_rarest(tx, any_word), any_word):
        if len(found) < limit:
            known = {one.seq for one in found}
            more = search_text(tx, some, scope, limit)
            found += [one for one in more if one.seq not in known]
    return found[:limit]


def search_text(tx: Tx, query: TextQuery, scope: Scope, limit: int) -> list[Found]:
    """Best first. What matches very many documents is ranked among the newest of them; see
    `MOST_RANKED`."""
    if not query.terms:
        return []
    if scope.few is not None:
        return _read_ranked(tx, _rank_few(tx, query, scope.few).limit(limit))
    found: list[Found] = []
    newest: int | None = _LARGEST
    # Older ones only while the filters have let too few through.
    while newest is not None and len(found) < limit:
        rank = _rank_postgres if tx.is_postgres else _rank_sqlite
        ranked, oldest = rank(tx, query, scope.filters.tenant_id, newest)
        seqs: list[int] = []
        found += scope.first_passing(tx, _follow(tx, ranked, seqs), limit - len(found))
        if oldest is None and len(seqs) == MOST_RANKED[tx.is_postgres]:
            oldest = min(seqs)
        newest = None if oldest is None else oldest - 1
    return found


def _follow(tx: Tx, ranked: sa.Select[Any], seqs: list[int]) -> Iterator[Found]:
    """The results as they are asked for, each noted in `seqs`."""
    for seq, score in tx.execute(ranked):
        seqs.append(seq)
        yield Found(seq, score)


def _read_ranked(tx: Tx, ranked: sa.Select[Any]) -> list[Found]:
    return [Found(*row) for row in tx.execute(ranked)]


def _rarest(tx: Tx, query: TextQuery) -> TextQuery:
    """The rare ones of these words, as far as all that match can be ranked."""
    counted = [(_count_matches(tx, TextQuery((term,))), term) for term in query.terms]
    matches, chosen = 0, []
    for count, term in sorted(counted):
        matches += count
        if matches <= MOST_RANKED[tx.is_postgres]:
            chosen.append(term)
    return replace(query, terms=tuple(chosen))


def _count_matches(tx: Tx, query: TextQuery) -> int:
    """About how many documents match: on Postgres what it takes them for, on SQLite no more than
    matters."""
    if tx.is_postgres:
        return _estimate_matches(tx, query)
    some = sa.select(_FTS.c.rowid).where(_matches_sqlite(query)).limit(MOST_RANKED[False] + 1)
    counted = sa.select(sa.func.count()).select_from(some.subquery())
    return int(tx.execute(counted).scalar_one())


def _rank_few(
    tx: Tx, query: TextQuery, few: Sequence[int], *, matched: bool = False
) -> sa.Select[Any]:
    """Of these documents, those that match, best first; `matched`: all of them do."""
    if tx.is_postgres:
        scored = sa.select(texts.c.seq, _score_postgres(query)).where(tx.among(texts.c.seq, few))
        return _best_first(scored if matched else scored.where(_matches_postgres(query)))
    # With a plus: else the index would be asked for each of them.
    among = sa.literal_column("+texts_fts.rowid").in_(few)
    return _best_first(sa.select(_FTS.c.rowid, _SCORE_SQLITE).where(_matches_sqlite(query), among))


def _rank_sqlite(tx: Tx, query: TextQuery, tenant_id: str, newest: int) -> Ranked:
    del tx
    # By the index of the tenant alone: of other tenants, not a row is read.
    own = sa.exists().where(nodes.c.tenant_id == tenant_id, nodes.c.seq == _FTS.c.rowid)
    matching = (
        sa.select(_FTS.c.rowid, _SCORE_SQLITE)
        .where(_matches_sqlite(query), _FTS.c.rowid <= newest, own)
        .order_by(_FTS.c.rowid.desc())
        .limit(MOST_RANKED[False])
    )
    return _best_first(matching), None


def _best_first(scored: sa.Select[Any]) -> sa.Select[Any]:
    each = scored.subquery("scored")
    seq, score = each.c
    return sa.select(seq, score).order_by(score.desc(), seq)


def _matches_sqlite(query: TextQuery) -> sa.TextClause:
    match = (" AND " if query.every else " OR ").join(f'"{term}"' for term in query.terms)
    return sa.text("texts_fts MATCH :match").bindparams(match=match)


def _rank_postgres(tx: Tx, query: TextQuery, tenant_id: str, newest: int) -> Ranked:
    most = MOST_RANKED[True]
    own = sa.select(nodes.c.seq).where(nodes.c.tenant_id == tenant_id, nodes.c.seq <= newest)
    recent = own.order_by(nodes.c.seq.desc()).limit(most)
    # What is in most documents is looked for in the newest of them: the index would list them all.
    in_most = _is_nearly_everywhere(tx, query)
    if not in_most:
        # Apart, so that the index is asked: Postgres takes reading and comparing the words of a
        # document for nearly free, and would do that for each, newest first.
        matching = sa.select(texts.c.seq).where(_matches_postgres(query)).cte("matching")
        recent = recent.where(nodes.c.seq.in_(sa.select(matching.prefix_with("MATERIALIZED"))))
    seqs = tx.execute(recent).scalars().all()
    oldest = seqs[-1] if len(seqs) == most else None
    return _rank_few(tx, query, seqs, matched=not in_most), oldest


def _is_nearly_everywhere(tx: Tx, query: TextQuery) -> bool:
    counted = sa.text("SELECT reltuples FROM pg_class WHERE oid = to_regclass('texts')")
    documents = float(tx.execute(counted).scalar_one())
    return _estimate_matches(tx, query) > _EVERYWHERE * documents


def _estimate_matches(tx: Tx, query: TextQuery) -> int:
    """By what Postgres knows of frequent words."""
    asked = sa.select(texts.c.seq).where(_matches_postgres(query)).compile(tx.connection)
    explained = tx.connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {asked}", asked.params)
    return int(explained.scalar_one()[0]["Plan"]["Plan Rows"])


def _matches_postgres(query: TextQuery) -> sa.ColumnElement[bool]:
    return _SEARCH.op("@@", return_type=sa.Boolean())(_tsquery(query))


def _score_postgres(query: TextQuery) -> sa.ColumnElement[float]:
    return sa.func.ts_rank_cd(_SEARCH, _tsquery(query), 1).label("score")


def _tsquery(query: TextQuery) -> sa.ColumnElement[str]:
    phrases = [sa.func.phraseto_tsquery("english", term) for term in query.terms]
    wanted: sa.ColumnElement[str] = phrases[0]
    for phrase in phrases[1:]:
        wanted = wanted.op("&&" if query.every else "||")(phrase)
    return wanted


def read_snippets(tx: Tx, query: TextQuery, seqs: Sequence[int]) -> dict[int, str]:
    """Of the documents that are shown only: each takes as long as reading its text. Any of the
    words is marked."""
    if not seqs:
        return {}
    query = replace(query, every=False)
    if tx.is_postgres:
        body = sa.func.left(texts.c.body, 100_000)
        snippet = sa.func.ts_headline("english", body, _tsquery(query), _HEADLINE)
        shown = sa.select(texts.c.seq, snippet).where(tx.among(texts.c.seq, seqs))
    else:
        marked = sa.select(_FTS.c.rowid, sa.literal_column(_SNIPPET))
        shown = marked.where(_matches_sqlite(query), _FTS.c.rowid.in_(seqs))
    return {row[0]: row[1] for row in tx.execute(shown)}


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
            known.why + found.why,
            found.position if known.position is None else known.position,
        )
    return sorted(together.values(), key=lambda found: (-found.score, found.seq))


def as_hits(
    tx: Tx, found: Sequence[Found], snippets: Mapping[int, str], terms: Sequence[str] = ()
) -> list[Hit]:
    """What was found, in its order, as it is shown, with the passages that speak for it by these
    words; without a snippet, with the beginning of its passage."""
    query = sa.select(nodes.c.seq, nodes.c.id, nodes.c.title, nodes.c.external_id, nodes.c.url)
    query = query.where(nodes.c.seq.in_([one.seq for one in found]))
    rows = {row.seq: row for row in tx.execute(query)}
    shown = show_passages(tx, found, terms)
    hits = []
    for one in found:
        row, passage = rows[one.seq], shown[one.seq]
        snippet = " ".join((snippets.get(one.seq) or passage.text[:_SNIPPET_CHARS]).split())
        title, score = row.title or row.external_id, round(one.score, 6)
        hits.append(Hit(row.id, title, row.url, score, snippet, one.why, passage.as_json()))
    return hits


def similar_nodes(tx: Tx, tenant_id: str, node_id: str, limit: int = 5) -> list[Hit]:
    """Documents with a passage that is near to one of this document's, nearest first, by the
    vectors that search uses; none if it has none."""
    identity = active_identity(tx)
    if identity is None:
        return []
    c = embeddings.c
    own = (
        sa.select(c.seq, c.vector)
        .join(nodes, nodes.c.seq == c.seq)
        .where(nodes.c.tenant_id == tenant_id, nodes.c.id == valid_node_id(node_id))
        .where(c.identity == identity)
        .order_by(c.position)
    )
    rows = tx.execute(own.limit(_MOST_COMPARED)).all()
    scope = Scope.look(tx, Filters(tenant_id))
    best: dict[int, Found] = {}
    for row in rows:
        # One more: the node itself is nearest to itself.
        for found in search_vectors(tx, row.vector, identity, scope, limit + 1):
            known = best.get(found.seq)
            if found.seq != row.seq and (known is None or found.score > known.score):
                best[found.seq] = found
    nearest = sorted(best.values(), key=lambda found: (-found.score, found.seq))
    return as_hits(tx, say_why("vector", nearest[:limit]), {})
