"""Duties: what one process at a time does for all of them."""

import sqlalchemy as sa
from alembic import op

from penstock.store.columns import UtcDateTime

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "duties",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("held_until", UtcDateTime, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("duties")
