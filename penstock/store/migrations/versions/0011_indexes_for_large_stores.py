"""Indexes that let a store grow: counting, claiming and deleting read no whole table."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_ACTIVE = "status IN ('pending', 'processing', 'retry_pending')"
_COMPLETE = "status = 'complete'"
_CANCELLED = "status = 'cancelled'"
_OF_RUN = "run_id IS NOT NULL"
_FELL_BACK = "fallback_reason IS NOT NULL"
_NEW: tuple[tuple[str, str, list[Any], str | None], ...] = (
    ("ix_nodes_raw", "nodes", ["raw_key"], None),
    ("ix_extractions_fallbacks_tenant", "extractions", ["tenant_id"], _FELL_BACK),
    ("ix_run_documents_counts", "run_documents", ["run_id", "status", "change"], None),
    ("ix_run_documents_node", "run_documents", ["node_id"], None),
    ("ix_work_items_run_counts", "work_items", ["run_id", "stage", "status", "outcome"], _OF_RUN),
    (
        "ix_work_items_run_active",
        "work_items",
        ["run_id", "tenant_id", sa.text("priority DESC"), "id"],
        f"{_ACTIVE} AND {_OF_RUN}",
    ),
    ("ix_work_items_complete", "work_items", ["tenant_id", "id", "stage"], _COMPLETE),
    ("ix_work_items_done", "work_items", ["stage", "finished_at"], _COMPLETE),
    ("ix_work_items_cancelled", "work_items", ["tenant_id", "stage", "id"], _CANCELLED),
    ("ix_idempotency_keys_created", "idempotency_keys", ["created_at"], None),
)


def upgrade() -> None:
    # On a Postgres in use, all of this was done beforehand without holding up writers. There
    # nothing may be left to do: even `CREATE INDEX IF NOT EXISTS` locks a table whose index exists.
    inspector = sa.inspect(op.get_bind())
    # Of a run's active items, the next revision has a better index; it may be there already.
    replaced = inspector.has_index("work_items", "ix_work_items_run_next")
    for name, table, columns, condition in _NEW:
        if replaced and name == "ix_work_items_run_active":
            continue
        if not inspector.has_index(table, name):
            where = None if condition is None else sa.text(condition)
            op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
    op.drop_index("ix_run_documents_status", "run_documents", if_exists=True)
    op.drop_index("ix_work_items_run", "work_items", if_exists=True)


def downgrade() -> None:
    where = sa.text(_OF_RUN)
    op.create_index(
        "ix_work_items_run",
        "work_items",
        ["run_id", "stage", "status"],
        sqlite_where=where,
        postgresql_where=where,
    )
    op.create_index("ix_run_documents_status", "run_documents", ["run_id", "status"])
    for name, table, _, _ in _NEW:
        op.drop_index(name, table)
