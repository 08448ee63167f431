"""Full-text search: FTS5 on SQLite, tsvector on Postgres; first all words, then any of them."""

from collections.abc import Sequence

import sqlalchemy as sa

from penstock.search.query import HIT_END, HIT_START, Filters, Found, terms_of
from penstock.store.database import Tx
from penstock.store.schema import nodes, texts

# A word in the title says more about a document than one in its body.
_SQLITE_RANK = "bm25(texts_fts, 4.0, 1.0)"
_SNIPPET = f"snippet(texts_fts, 1, '{HIT_START}', '{HIT_END}', ' … ', 24)"
_HEADLINE = f"StartSel={HIT_START}, StopSel={HIT_END}, MaxWords=28, MinWords=12, MaxFragments=2"


def search_text(tx: Tx, query: str, filters: Filters, limit: int) -> list[Found]:
    """Best first. Documents with every word; only when there are none, those with some."""
    terms = terms_of(query)
    if not terms:
        return []
    find = _find_postgres if tx.connection.dialect.name == "postgresql" else _find_sqlite
    return find(tx, terms, filters, limit, every=True) or find(
        tx, terms, filters, limit, every=False
    )


def _find_sqlite(
    tx: Tx, terms: Sequence[str], filters: Filters, limit: int, *, every: bool
) -> list[Found]:
    match = (" AND " if every else " OR ").join(f'"{term}"' for term in terms)
    fts = sa.table("texts_fts", sa.column("rowid"))
    rank: sa.ColumnElement[float] = sa.literal_column(_SQLITE_RANK)
    statement = (
        sa.select(nodes.c.seq, rank.label("rank"), sa.literal_column(_SNIPPET).label("snippet"))
        .select_from(fts.join(nodes, nodes.c.seq == fts.c.rowid))
        .where(sa.text("texts_fts MATCH :match").bindparams(match=match), *filters.conditions(tx))
        .order_by(rank, nodes.c.seq)
        .limit(limit)
    )
    # FTS5 ranks downwards: more negative is better.
    return [Found(row.seq, -row.rank, row.snippet) for row in tx.execute(statement)]


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
