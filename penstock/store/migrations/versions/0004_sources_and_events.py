"""Settings of sources, documents forced in a run, and what an event is about."""

import sqlalchemy as sa
from alembic import op

from penstock.store.columns import Json, Text, UtcDateTime

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    settings = sa.Column("settings", Json, nullable=False, server_default="{}")
    op.add_column("sources", settings)
    op.add_column("sources", sa.Column("removed_at", UtcDateTime, nullable=True))
    op.add_column("runs", sa.Column("forced", Json, nullable=True))
    op.add_column("events", sa.Column("source", Text, nullable=True))
    op.add_column("events", sa.Column("document", Text, nullable=True))
    op.create_index("ix_events_tenant", "events", ["tenant_id", "seq"])


def downgrade() -> None:
    op.drop_index("ix_events_tenant", "events")
    op.drop_column("events", "document")
    op.drop_column("events", "source")
    op.drop_column("runs", "forced")
    op.drop_column("sources", "removed_at")
    op.drop_column("sources", "settings")
