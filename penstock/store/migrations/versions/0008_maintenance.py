"""What is left of rows that maintenance forgets: figures of runs, and totals."""

import sqlalchemy as sa
from alembic import op

from penstock.store.columns import Json

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("runs", sa.Column("figures", Json, nullable=True))
    op.create_table(
        "tallies",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("label", sa.Text(), primary_key=True),
        sa.Column("total", sa.BigInteger(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("tallies")
    op.drop_column("runs", "figures")
