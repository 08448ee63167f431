"""Passages of texts, and a vector for each."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from penstock.store.columns import Id, Json, UtcDateTime, Vector

revision = "0018"
down_revision = "0017"

_KEPT = "seq, identity, vector, drift, embedded_at"


def upgrade() -> None:
    op.create_table(
        "passages",
        sa.Column("seq", Id, sa.ForeignKey("nodes.seq", ondelete="CASCADE"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("start", sa.Integer, nullable=False),
        sa.Column("end", sa.Integer, nullable=False),
        sa.Column("page", sa.Integer),
        sa.Column("heading", Json),
        sqlite_with_rowid=False,
    )
    op.add_column("nodes", sa.Column("passage_chars", sa.Integer))
    if op.get_bind().dialect.name == "sqlite":
        _rebuild_embeddings(with_passages=True)
        return
    op.add_column(
        "embeddings", sa.Column("position", sa.Integer, nullable=False, server_default="0")
    )
    op.add_column("embeddings", sa.Column("hash", sa.LargeBinary))
    _replace_key("seq", "identity", "position")


def downgrade() -> None:
    op.execute("DELETE FROM embeddings WHERE position > 0")
    if op.get_bind().dialect.name == "sqlite":
        _rebuild_embeddings(with_passages=False)
    else:
        _replace_key("seq", "identity")
        op.drop_column("embeddings", "hash")
        op.drop_column("embeddings", "position")
    op.drop_column("nodes", "passage_chars")
    op.drop_table("passages")


def _replace_key(*columns: str) -> None:
    op.drop_constraint("embeddings_pkey", "embeddings")
    op.create_primary_key("embeddings_pkey", "embeddings", [*columns])


def _rebuild_embeddings(*, with_passages: bool) -> None:
    """SQLite changes no primary key. The indexes over vectors number their rows otherwise: they go,
    and the next worker makes them again; until then search compares every vector."""
    connection = op.get_bind()
    for kind, created in (("trigger", "TRIGGER"), ("table", "VIRTUAL TABLE")):
        # `instr`: a percent sign would be a parameter to some drivers.
        query = (
            f"SELECT name FROM sqlite_master WHERE type = '{kind}' "
            f"AND instr(sql, 'CREATE {created} ix_embeddings_') = 1"
        )
        for name in connection.exec_driver_sql(query).scalars().all():
            op.execute(f"DROP {kind} {name}")
    op.rename_table("embeddings", "embeddings_before")
    columns: list[sa.Column[Any]] = [
        sa.Column("seq", Id, sa.ForeignKey("nodes.seq", ondelete="CASCADE"), primary_key=True),
        sa.Column("identity", sa.Text, primary_key=True),
        sa.Column("vector", Vector, nullable=False),
        sa.Column("drift", sa.Float),
        sa.Column("embedded_at", UtcDateTime, nullable=False),
    ]
    if with_passages:
        columns.insert(2, sa.Column("position", sa.Integer, primary_key=True, server_default="0"))
        columns.append(sa.Column("hash", sa.LargeBinary))
    op.create_table("embeddings", *columns)
    op.execute(f"INSERT INTO embeddings ({_KEPT}) SELECT {_KEPT} FROM embeddings_before")
    op.drop_table("embeddings_before")
