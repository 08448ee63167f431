"""The sources of a tenant, as the store keeps them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from penstock.errors import NotFound, UsageError
from penstock.sources.definition import SourceSettings
from penstock.store.database import Tx
from penstock.store.schema import ACTIVE_RUN, nodes, runs, sources


@dataclass(frozen=True, slots=True)
class Source:
    """A source that is known by name."""

    id: int
    tenant_id: str
    name: str
    kind: str
    location: str
    settings: SourceSettings
    created_at: datetime

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "location": self.location,
            "tenant": self.tenant_id,
            **self.settings.model_dump(mode="json"),
        }


def put_source(
    tx: Tx, tenant_id: str, name: str, kind: str, location: str, settings: SourceSettings
) -> Source:
    """Add a source, or change the one of this name."""
    known = _find(tx, tenant_id, sources.c.name == name, removed=True)
    # What was ingested by its address alone gets a name now, and keeps its documents.
    known = known or _find(
        tx, tenant_id, sources.c.location == location, sources.c.name == location
    )
    values = {"name": name, "location": location, "settings": settings.model_dump(mode="json")}
    if known is None:
        row = values | {"tenant_id": tenant_id, "kind": kind, "created_at": tx.now}
        tx.execute(sa.insert(sources).values(row))
    else:
        _refuse_other_kind(tx, known, kind)
        changed = values | {"kind": kind, "removed_at": None}
        tx.execute(sa.update(sources).where(sources.c.id == known.id).values(changed))
    return read_source(tx, tenant_id, name)


def list_sources(tx: Tx, tenant_id: str) -> list[Source]:
    query = _select(tenant_id).order_by(sources.c.name)
    return [_source(row) for row in tx.execute(query)]


def read_source(tx: Tx, tenant_id: str, name: str) -> Source:
    found = find_source(tx, tenant_id, name)
    if found is None:
        raise NotFound(f"there is no source {name!r}; `penstock source list` shows them")
    return found


def find_source(tx: Tx, tenant_id: str, name: str) -> Source | None:
    """By its name or, where only one has it, by its location."""
    named = _find(tx, tenant_id, sources.c.name == name)
    if named is not None:
        return named
    there = tx.execute(_select(tenant_id).where(sources.c.location == name).limit(2)).all()
    return _source(there[0]) if len(there) == 1 else None


def remove_source(tx: Tx, tenant_id: str, name: str) -> Source:
    """Forget a source; its documents and runs stay."""
    found = read_source(tx, tenant_id, name)
    active = sa.select(runs.c.id).where(runs.c.source_id == found.id, ACTIVE_RUN)
    run_id = tx.execute(active).scalar()
    if run_id is not None:
        raise UsageError(
            f"run {run_id} of {found.name} is active: wait for it, or end it with "
            f"`penstock runs abort {run_id}`"
        )
    gone = sa.update(sources).where(sources.c.id == found.id)
    tx.execute(gone.values(removed_at=tx.now))
    return found


def _refuse_other_kind(tx: Tx, known: Source, kind: str) -> None:
    """Listed as something else it would seem to have lost all its documents."""
    documents = sa.select(sa.literal(1)).where(nodes.c.source_id == known.id).limit(1)
    if known.kind != kind and tx.execute(documents).first() is not None:
        raise UsageError(
            f"{known.name} has documents as a {known.kind} and cannot become a {kind}: "
            "give the new one another name"
        )


def _find(
    tx: Tx, tenant_id: str, *conditions: sa.ColumnElement[bool], removed: bool = False
) -> Source | None:
    row = tx.execute(_select(tenant_id, removed=removed).where(*conditions)).first()
    return None if row is None else _source(row)


def _select(tenant_id: str, *, removed: bool = False) -> sa.Select[Any]:
    ours = sa.select(sources).where(sources.c.tenant_id == tenant_id)
    return ours if removed else ours.where(sources.c.removed_at.is_(None))


def _source(row: sa.Row[Any]) -> Source:
    return Source(
        row.id,
        row.tenant_id,
        row.name,
        row.kind,
        row.location,
        SourceSettings.model_validate(row.settings),
        row.created_at,
    )
