"""Indexes for looking at a document's jobs, at dead letters, at costs and at fallbacks."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_DEAD = sa.text("status = 'failed'")
_FELL_BACK = sa.text("fallback_reason IS NOT NULL")


def upgrade() -> None:
    op.create_index("ix_work_items_node", "work_items", ["node_id"])
    op.create_index(
        "ix_work_items_dead",
        "work_items",
        ["tenant_id", "stage", "id"],
        sqlite_where=_DEAD,
        postgresql_where=_DEAD,
    )
    op.create_index("ix_model_calls_called", "model_calls", ["called_at"])
    op.create_index("ix_extractions_extracted", "extractions", ["extracted_at"])
    op.create_index(
        "ix_extractions_fallbacks",
        "extractions",
        ["run_id"],
        sqlite_where=_FELL_BACK,
        postgresql_where=_FELL_BACK,
    )


def downgrade() -> None:
    op.drop_index("ix_extractions_fallbacks", "extractions")
    op.drop_index("ix_extractions_extracted", "extractions")
    op.drop_index("ix_model_calls_called", "model_calls")
    op.drop_index("ix_work_items_dead", "work_items")
    op.drop_index("ix_work_items_node", "work_items")
