"""Items that were interrupted come before fresh work of their priority."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_WAITING = "status IN ('pending', 'retry_pending')"
_ACTIVE_OF_RUN = "status IN ('pending', 'processing', 'retry_pending') AND run_id IS NOT NULL"
_BEFORE = (
    ("ix_work_items_due", ["tenant_id", "priority DESC", "id"], _WAITING),
    (
        "ix_work_items_run_active",
        ["run_id", "tenant_id", "priority DESC", "id"],
        _ACTIVE_OF_RUN,
    ),
)
_AFTER = (
    ("ix_work_items_next", ["tenant_id", "priority DESC", "interrupted DESC", "id"], _WAITING),
    (
        "ix_work_items_run_next",
        ["run_id", "tenant_id", "priority DESC", "interrupted DESC", "id"],
        _ACTIVE_OF_RUN,
    ),
)


def upgrade() -> None:
    # On a Postgres in use, all of this was done beforehand without holding up writers; see 0011.
    inspector = sa.inspect(op.get_bind())
    if "interrupted" not in {one["name"] for one in inspector.get_columns("work_items")}:
        new = sa.Column("interrupted", sa.Boolean, nullable=False, server_default=sa.false())
        op.add_column("work_items", new)
    _replace(_BEFORE, _AFTER)


def downgrade() -> None:
    _replace(_AFTER, _BEFORE)
    op.drop_column("work_items", "interrupted")


def _replace(
    old: tuple[tuple[str, list[str], str], ...], new: tuple[tuple[str, list[str], str], ...]
) -> None:
    inspector = sa.inspect(op.get_bind())
    for name, columns, condition in new:
        if not inspector.has_index("work_items", name):
            where, parts = sa.text(condition), [sa.text(column) for column in columns]
            op.create_index(name, "work_items", parts, sqlite_where=where, postgresql_where=where)
    for name, _, _ in old:
        op.drop_index(name, "work_items", if_exists=True)
