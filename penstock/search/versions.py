"""What was extracted from a node over time, and what changed from one time to the next."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import Any

import sqlalchemy as sa

from penstock.search.nodes import valid_node_id
from penstock.store.database import Tx
from penstock.store.schema import extractions

MOST = 100
_SHOWN = (
    "id",
    "version",
    "model",
    "confidence",
    "fallback_reason",
    "profile",
    "extracted_at",
    "run_id",
    "fields",
)


@dataclass(frozen=True, slots=True)
class ExtractionVersion:
    """One extraction, and how its fields differ from those of the one before it."""

    id: int
    version: str
    model: str
    confidence: float
    fallback_reason: str | None
    profile: str
    extracted_at: datetime
    run_id: int | None
    fields: dict[str, Any]
    changed: dict[str, tuple[Any, Any]]
    """Before and now, by name; None where a field was not there."""


def extraction_versions(tx: Tx, tenant_id: str, node_id: str) -> list[ExtractionVersion]:
    """The newest first, a hundred at most."""
    c = extractions.c
    own = sa.and_(c.tenant_id == tenant_id, c.node_id == valid_node_id(node_id))
    newest = sa.select(*[c[name] for name in _SHOWN]).where(own).order_by(c.id.desc())
    # One more than is shown: the oldest that is shown differs from something too.
    rows = tx.execute(newest.limit(MOST + 1)).all()
    versions = [
        ExtractionVersion(
            **row._mapping,
            changed={} if older is None else _changed(older.fields, row.fields),
        )
        for row, older in zip_longest(rows, rows[1:])
    ]
    return versions[:MOST]


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {
        name: (before.get(name), now.get(name))
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    }
