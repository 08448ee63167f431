"""Indexes for looking at one document's jobs, and at how often a run's models fell back."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_FELL_BACK = sa.text("fallback_reason IS NOT NULL")


def upgrade() -> None:
    op.create_index("ix_work_items_node", "work_items", ["node_id"])
    op.create_index(
        "ix_extractions_fallbacks",
        "extractions",
        ["run_id"],
        sqlite_where=_FELL_BACK,
        postgresql_where=_FELL_BACK,
    )


def downgrade() -> None:
    op.drop_index("ix_extractions_fallbacks", "extractions")
    op.drop_index("ix_work_items_node", "work_items")
