"""Work names the configuration that must do it; a run keeps the share that may fail."""

import sqlalchemy as sa
from alembic import op

from penstock.store.columns import Json, UtcDateTime

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "configurations",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("extractor", sa.Text, nullable=False),
        sa.Column("asks_models", sa.Boolean, nullable=False),
        sa.Column("embedder", sa.Text, nullable=False),
        sa.Column("blocks", Json, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
    )
    op.add_column("runs", sa.Column("configuration", sa.Text))
    op.add_column("runs", sa.Column("max_failed", sa.Float))
    op.add_column("work_items", sa.Column("requires", sa.Text))


def downgrade() -> None:
    op.drop_column("work_items", "requires")
    op.drop_column("runs", "max_failed")
    op.drop_column("runs", "configuration")
    op.drop_table("configurations")
