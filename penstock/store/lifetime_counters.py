"""Totals of rows that were deleted, so that counters never go down."""

from collections.abc import Mapping

import sqlalchemy as sa

from penstock.store.database import Tx
from penstock.store.schema import tallies

FAILED_ATTEMPTS = "failed_attempts"
COMPLETED_ITEMS = "completed_items"


def add_to_counter(tx: Tx, name: str, counts: Mapping[str, int]) -> None:
    """Add counts of rows that are about to be deleted, by label."""
    # In one order, so that two transactions do not deadlock.
    rows = [
        {"name": name, "label": label, "total": count}
        for label, count in sorted(counts.items())
        if count
    ]
    if not rows:
        return
    insert = tx.insert(tallies)
    added = {"total": tallies.c.total + insert.excluded.total}
    tx.execute(insert.on_conflict_do_update(index_elements=["name", "label"], set_=added), rows)


def read_counter(tx: Tx, name: str) -> dict[str, int]:
    """Counts of rows that were deleted so far, by label."""
    query = sa.select(tallies.c.label, tallies.c.total).where(tallies.c.name == name)
    return {row.label: row.total for row in tx.execute(query)}
