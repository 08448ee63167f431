"""${message}."""

import sqlalchemy as sa
from alembic import op

from penstock.store.columns import Id, Json, NodeId, UtcDateTime, Vector

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
