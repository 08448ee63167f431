"""A run keeps the share of its documents that may fail."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("runs", sa.Column("max_failed", sa.Float))


def downgrade() -> None:
    op.drop_column("runs", "max_failed")
