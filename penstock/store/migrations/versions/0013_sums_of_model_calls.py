"""Indexes that hold all that model calls are summed by, so that summing reads no row."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_SUMMED = ["prompt_tokens", "completion_tokens", "cached_tokens", "seconds", "cost_usd"]
_NEW = {
    "ix_model_calls_run_sums": ["run_id", "model", "outcome", *_SUMMED],
    "ix_model_calls_tenant_sums": ["tenant_id", "called_at", "model", "outcome", *_SUMMED],
}
_OLD = {"ix_model_calls_run": ["run_id"], "ix_model_calls_tenant": ["tenant_id", "called_at"]}


def upgrade() -> None:
    # On a Postgres in use, all of this was done beforehand without holding up writers.
    inspector = sa.inspect(op.get_bind())
    for name, columns in _NEW.items():
        if not inspector.has_index("model_calls", name):
            op.create_index(name, "model_calls", columns)
    for name in _OLD:
        op.drop_index(name, "model_calls", if_exists=True)


def downgrade() -> None:
    for name, columns in _OLD.items():
        op.create_index(name, "model_calls", columns)
    for name in _NEW:
        op.drop_index(name, "model_calls")
