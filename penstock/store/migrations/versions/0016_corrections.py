"""Corrections, and how much is gained by the review of a document."""

import sqlalchemy as sa
from alembic import op

from penstock.store.columns import Id, Json, NodeId, Text, UtcDateTime

revision = "0016"
down_revision = "0015"

_QUEUE = "ix_nodes_review_queue"
_MOST = 10


def upgrade() -> None:
    op.create_table(
        "corrections",
        sa.Column("id", Id, primary_key=True),
        sa.Column("tenant_id", sa.Text, nullable=False),
        sa.Column("node_id", NodeId, nullable=False),
        sa.Column("profile", sa.Text, nullable=False),
        sa.Column("field", Text, nullable=False),
        sa.Column("value", Json, nullable=False),
        sa.Column("before", Json, nullable=False),
        sa.Column("author", Text, nullable=False),
        sa.Column("reason", Text),
        sa.Column("text_hash", sa.Text, nullable=False),
        sa.Column("corrected_at", UtcDateTime, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_corrections_node", "corrections", ["node_id", "id"])
    op.create_index("ix_corrections_tenant", "corrections", ["tenant_id", "node_id"])
    # On a Postgres in use, the rest was done beforehand without holding up writers; see 0011.
    inspector = sa.inspect(op.get_bind())
    if "review_value" not in {one["name"] for one in inspector.get_columns("nodes")}:
        op.add_column("nodes", sa.Column("review_value", sa.Integer))
    nodes = sa.table("nodes", sa.column("needs_review", sa.Boolean), sa.column("review_value"))
    op.execute(sa.update(nodes).where(nodes.c.needs_review).values(review_value=_MOST))
    if not inspector.has_index("nodes", _QUEUE):
        op.create_index(
            _QUEUE,
            "nodes",
            ["tenant_id", "review_value", "seq"],
            sqlite_where=sa.text("needs_review = 1 AND expired_at IS NULL"),
            postgresql_where=sa.text("needs_review AND expired_at IS NULL"),
        )


def downgrade() -> None:
    op.drop_index(_QUEUE, "nodes")
    op.drop_column("nodes", "review_value")
    op.drop_table("corrections")
