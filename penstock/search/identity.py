"""Which vectors search looks among, and when it goes over to those of a new model.

The store remembers one identity. When the settings name another model, its vectors are made
beside the old ones, and search changes over when they are complete.
"""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from penstock.store.database import Database, Tx
from penstock.store.schema import embeddings, nodes, vector_identity

# Of the nodes to be embedded anew, so many may have failed for good: one broken document must not
# keep all others waiting for ever, and a model that fails them all must not take over.
MOST_FAILED = 0.01
_SEARCH = "search"
_c = vector_identity.c


@dataclass(frozen=True, slots=True)
class Switch:
    """How far the change from one identity to another has come."""

    active: str
    wanted: str
    missing: int = 0
    """Nodes that search finds by their old vector and would not find by a new one."""
    failed: int = 0
    """The same, of nodes that could not be embedded by the new model."""
    nodes: int = 0
    """Nodes with an old vector."""

    @property
    def done(self) -> bool:
        return self.active == self.wanted

    @property
    def ready(self) -> bool:
        return self.missing == 0 and self.failed <= MOST_FAILED * self.nodes

    def as_json(self) -> dict[str, Any]:
        return {
            "active": self.active,
            "wanted": self.wanted,
            "pending": not self.done,
            "missing": self.missing,
            "failed": self.failed,
        }

    def __str__(self) -> str:
        if self.done:
            return self.active
        failed = f", {self.failed} failed" if self.failed else ""
        return (
            f"search uses {self.active} until {self.wanted} is complete: "
            f"{self.missing} vectors are missing{failed}"
        )


def active_identity(tx: Tx) -> str | None:
    """The vectors that search looks among; None before anything was embedded."""
    found: str | None = tx.execute(
        sa.select(_c.identity).where(_c.name == _SEARCH)
    ).scalar_one_or_none()
    return found


def adopt_identity(tx: Tx, identity: str) -> None:
    """The first vectors there are decide; all later ones wait for a switch."""
    row = {"name": _SEARCH, "identity": identity, "since": tx.now}
    tx.execute(tx.insert(vector_identity).values(row).on_conflict_do_nothing())


def look_at_switch(tx: Tx, wanted: str) -> Switch:
    """How far it is to the vectors that are made now."""
    active = active_identity(tx) or wanted
    if active == wanted:
        return Switch(active, wanted)
    present = (
        sa.select(sa.func.count())
        .select_from(nodes.join(embeddings, embeddings.c.seq == nodes.c.seq))
        .where(embeddings.c.identity == active, nodes.c.expired_at.is_(None))
    )
    new = embeddings.alias("new")
    lacking = present.where(~sa.exists().where(new.c.seq == nodes.c.seq, new.c.identity == wanted))
    status = nodes.c.embedding_status
    # A text that has become empty has no vector any more.
    waiting = sa.or_(status.is_(None), status.not_in(["failed", "skipped"]))
    counted = [
        int(tx.execute(query).scalar_one())
        for query in (lacking.where(waiting), lacking.where(status == "failed"), present)
    ]
    return Switch(active, wanted, *counted)


def try_switch(database: Database, wanted: str) -> Switch:
    """Let search look among these vectors if they are complete; how it stands after that."""
    with database.write() as tx:
        found = look_at_switch(tx, wanted)
        if found.done or not found.ready:
            return found
        row = sa.update(vector_identity).where(_c.name == _SEARCH, _c.identity == found.active)
        tx.execute(row.values(identity=wanted, previous=found.active, since=tx.now))
    return Switch(wanted, wanted)
