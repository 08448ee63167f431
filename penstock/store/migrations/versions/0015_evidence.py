"""Evidence and confidence of each value, what needs review, and why a profile was chosen."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from penstock.store.columns import Json, Text

revision = "0015"
down_revision = "0014"

_FLAGGED = ("nodes", "run_documents")
_INDEXES: dict[str, tuple[str, list[str], str]] = {
    "ix_nodes_review": ("nodes", ["tenant_id", "seq"], " AND expired_at IS NULL"),
    "ix_run_documents_review": ("run_documents", ["run_id"], ""),
}
_NEW: dict[str, tuple[tuple[str, Any], ...]] = {
    "nodes": (
        ("profile_basis", sa.Text),
        ("profile_reason", Text),
        ("extraction_profile_hash", sa.Text),
        ("evidence", Json),
        ("review_reasons", Json),
    ),
    "extractions": (("profile_hash", sa.Text), ("evidence", Json)),
    "runs": (("needs_review", sa.Integer),),
}


def upgrade() -> None:
    for table, columns in _NEW.items():
        for name, kind in columns:
            op.add_column(table, sa.Column(name, kind, nullable=True))
    # On a Postgres in use, the rest was done beforehand without holding up writers; see 0011.
    inspector = sa.inspect(op.get_bind())
    for table in _FLAGGED:
        if "needs_review" not in {one["name"] for one in inspector.get_columns(table)}:
            flag = sa.Column("needs_review", sa.Boolean, nullable=False, server_default=sa.false())
            op.add_column(table, flag)
    for name, (table, indexed, condition) in _INDEXES.items():
        if not inspector.has_index(table, name):
            op.create_index(
                name,
                table,
                indexed,
                sqlite_where=sa.text(f"needs_review = 1{condition}"),
                postgresql_where=sa.text(f"needs_review{condition}"),
            )


def downgrade() -> None:
    for name, (table, _, _) in _INDEXES.items():
        op.drop_index(name, table)
    for table in _FLAGGED:
        op.drop_column(table, "needs_review")
    for table, columns in _NEW.items():
        for name, _ in columns:
            op.drop_column(table, name)
