"""Cached tokens of calls, marks of answers, and an index for what a tenant spends."""

import sqlalchemy as sa
from alembic import op

from penstock.store.columns import Json

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    cached = sa.Column("cached_tokens", sa.Integer(), nullable=False, server_default="0")
    op.add_column("model_calls", cached)
    op.add_column("extractions", sa.Column("marks", Json, nullable=True))
    op.create_index("ix_model_calls_tenant", "model_calls", ["tenant_id", "called_at"])


def downgrade() -> None:
    op.drop_index("ix_model_calls_tenant", "model_calls")
    op.drop_column("extractions", "marks")
    op.drop_column("model_calls", "cached_tokens")
