"""Canaries: a sample under a new version, beside the old records."""

import sqlalchemy as sa
from alembic import op

from penstock.store.columns import Id, Json, Text, UtcDateTime

revision = "0017"
down_revision = "0016"

_UNDECIDED = sa.text("status = 'canary'")


def upgrade() -> None:
    op.add_column("backfills", sa.Column("canary", Json, nullable=True))
    # On a Postgres in use, this was done beforehand without holding up writers.
    if not sa.inspect(op.get_bind()).has_index("backfills", "uq_backfills_one_canary"):
        op.create_index(
            "uq_backfills_one_canary",
            "backfills",
            ["key"],
            unique=True,
            sqlite_where=_UNDECIDED,
            postgresql_where=_UNDECIDED,
        )
    op.create_table(
        "canary_documents",
        sa.Column(
            "backfill_id",
            Id,
            sa.ForeignKey("backfills.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("seq", Id, sa.ForeignKey("nodes.seq", ondelete="CASCADE"), primary_key=True),
        sa.Column("lease_token", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", UtcDateTime, nullable=True),
        sa.Column("outcome", Text, nullable=True),
        sa.Column("cache_key", sa.Text(), nullable=True),
        sa.Column("profile", sa.Text(), nullable=True),
        sa.Column("old", Json, nullable=True),
        sa.Column("new", Json, nullable=True),
    )
    op.create_index("ix_canary_documents_node", "canary_documents", ["seq"])


def downgrade() -> None:
    op.drop_table("canary_documents")
    op.drop_index("uq_backfills_one_canary", "backfills")
    op.drop_column("backfills", "canary")
