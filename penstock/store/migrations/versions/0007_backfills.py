"""Backfills, and which vectors search looks among."""

import sqlalchemy as sa
from alembic import op

from penstock.store.columns import Id, Json, UtcDateTime

revision = "0007"
down_revision = "0006"

_ACTIVE = sa.text("status = 'active'")


def upgrade() -> None:
    op.create_table(
        "backfills",
        sa.Column("id", Id, primary_key=True),
        sa.Column("tenant_id", sa.Text(), nullable=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("selection", Json, nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("cursor", Id, nullable=False),
        sa.Column("enqueued", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("updated_at", UtcDateTime, nullable=False),
        sa.Column("finished_at", UtcDateTime, nullable=True),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "uq_backfills_one_active",
        "backfills",
        ["key"],
        unique=True,
        sqlite_where=_ACTIVE,
        postgresql_where=_ACTIVE,
    )
    op.create_table(
        "vector_identity",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=True),
        sa.Column("since", UtcDateTime, nullable=False),
    )
    # Search has looked among the vectors of whatever the settings named; most likely of these.
    op.execute(
        "INSERT INTO vector_identity (name, identity, since) "
        "SELECT 'search', identity, CURRENT_TIMESTAMP FROM embeddings "
        "GROUP BY identity ORDER BY COUNT(*) DESC LIMIT 1"
    )


def downgrade() -> None:
    op.drop_table("vector_identity")
    op.drop_table("backfills")
