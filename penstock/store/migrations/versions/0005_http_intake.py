"""Nodes that come over HTTP, their idempotency keys, and an index by which tenants take turns."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from penstock.store.columns import Json, UtcDateTime

revision = "0005"
down_revision = "0004"

_OF_RUN = sa.text("run_id IS NOT NULL")
_WAITING = sa.text("status IN ('pending', 'retry_pending')")


def upgrade() -> None:
    op.add_column("nodes", sa.Column("given", Json, nullable=True))
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("answer", Json, nullable=True),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "key"),
    )
    op.drop_index("ix_work_items_due", "work_items")
    _create_due_index(["tenant_id", sa.text("priority DESC"), "id"])
    op.drop_index("ix_work_items_run", "work_items")
    _create_run_index({"sqlite_where": _OF_RUN, "postgresql_where": _OF_RUN})
    if op.get_bind().dialect.name == "postgresql":
        # Room on each page for the next version of a row, which is then found without an index.
        op.execute("ALTER TABLE work_items SET (fillfactor = 70)")


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE work_items RESET (fillfactor)")
    op.drop_index("ix_work_items_run", "work_items")
    _create_run_index({})
    op.drop_index("ix_work_items_due", "work_items")
    _create_due_index([sa.text("priority DESC"), "id"])
    op.drop_table("idempotency_keys")
    op.drop_column("nodes", "given")


def _create_run_index(condition: dict[str, Any]) -> None:
    op.create_index("ix_work_items_run", "work_items", ["run_id", "stage", "status"], **condition)


def _create_due_index(columns: list[Any]) -> None:
    op.create_index(
        "ix_work_items_due",
        "work_items",
        columns,
        sqlite_where=_WAITING,
        postgresql_where=_WAITING,
    )
