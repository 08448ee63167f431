"""Inserts work items, many in one statement.

A stage of a node has at most one active item; a second one is not recorded, or replaces it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from penstock.queue.items import NO_LEASE, ItemPayload, ItemStatus, NewItem, WorkItem
from penstock.store.columns import dump_storable
from penstock.store.database import Tx
from penstock.store.schema import ACTIVE_ITEM, work_items

_TAKEN_OVER = (
    "status",
    "attempts",
    "rescues",
    "interrupted",
    "run_at",
    "updated_at",
    *NO_LEASE,
)
# Kept when work of no run takes over an item of a run: the run waits for its document, which the
# payload names, at its own priority. A node is in one active run at most.
_KEPT_BY_RUNS = ("run_id", "payload", "priority", "requires")
# The columns in which items that are enqueued together are nearly always equal.
_GROUP = ("tenant_id", "run_id", "stage", "priority", "requires")


class Recorded(NamedTuple):
    """A new item with the id, the time of creation and the run of its row."""

    new: NewItem
    id: int
    created_at: datetime
    run_id: int | None


def insert_items(
    tx: Tx, items: Iterable[NewItem], *, take_over: bool, **common: Any
) -> list[Recorded]:
    """Record these, with `common` columns for all of them; those that were recorded.

    An active item of the same node and stage stays as it is, or is replaced with `take_over`.
    """
    unique = {(item.node_id, item.stage): item for item in items}
    fresh = {
        "status": ItemStatus.PENDING,
        "attempts": 0,
        "rescues": 0,
        "interrupted": False,
        "run_at": tx.now,
        "created_at": tx.now,
        "updated_at": tx.now,
    }
    values = NO_LEASE | fresh | common
    groups: dict[tuple[Any, ...], dict[str, NewItem]] = {}
    for item in unique.values():
        shared = (item.tenant_id, item.run_id, item.stage, item.priority, item.requires)
        groups.setdefault(shared, {})[item.node_id] = item
    inserted: list[Recorded] = []
    for shared, group in groups.items():
        in_common = values | dict(zip(_GROUP, shared, strict=True))
        inserted += _insert_group(tx, group, in_common, take_over)
    return inserted


def as_work_items(tx: Tx, rows: Sequence[Recorded]) -> list[WorkItem]:
    """The items as they are now: one that kept its run kept its payload and its priority too."""
    kept = [number for new, number, _, run_id in rows if run_id != new.run_id]
    own: dict[int, tuple[ItemPayload, int, str | None]] = {}
    if kept:
        c = work_items.c
        query = sa.select(c.id, c.payload, c.priority, c.requires).where(tx.among(c.id, kept))
        own = {
            row.id: (ItemPayload.from_json(row.payload), row.priority, row.requires)
            for row in tx.execute(query)
        }
    items: list[WorkItem] = []
    for new, number, created_at, run_id in rows:
        payload, priority, requires = own.get(number, (new.payload, new.priority, new.requires))
        items.append(
            WorkItem(
                number,
                new.tenant_id,
                new.node_id,
                new.stage,
                run_id,
                priority,
                attempts=0,
                rescues=0,
                payload=payload,
                enqueued_at=created_at,
                requires=requires,
            )
        )
    return items


def _insert_group(
    tx: Tx, items: Mapping[str, NewItem], values: Mapping[str, Any], take_over: bool
) -> list[Recorded]:
    """Items that differ in node and payload alone: two parameters for any number of them. Sending
    parameters for each row would cost more than inserting it."""
    if not tx.is_postgres:
        own = [[item.node_id, item.payload.to_json()] for item in items.values()]
        named = {"own": dump_storable(own)}
        rows = tx.execute(_sqlite_statement(tuple(values), take_over), {**values, **named})
        return [Recorded(items[row.node_id], row.id, row.created_at, row.run_id) for row in rows]
    payloads = [item.payload.to_json() for item in items.values()]
    named = {"nodes": ",".join(items), "payloads": dump_storable(payloads)}
    # One row back, too.
    row = tx.execute(_group_statement(tuple(values), take_over), {**values, **named}).one()
    if row.ids is None:
        return []
    count = len(row.ids)
    times: Sequence[datetime] = row.times or [tx.now] * count
    run_ids: Sequence[int | None] = row.runs or [values["run_id"]] * count
    new = [items[node_id] for node_id in row.nodes.split(",")]
    return [*map(Recorded._make, zip(new, row.ids, times, run_ids, strict=True))]


def _on_conflict(take_over: bool) -> str:
    of_run = "excluded.run_id IS NULL AND work_items.run_id IS NOT NULL"
    kept = [
        f"{name} = CASE WHEN {of_run} THEN work_items.{name} ELSE excluded.{name} END"
        for name in _KEPT_BY_RUNS
    ]
    fresh = ", ".join([*kept, *[f"{name} = excluded.{name}" for name in _TAKEN_OVER]])
    then = f"UPDATE SET {fresh}" if take_over else "NOTHING"
    return f"ON CONFLICT (node_id, stage) WHERE {ACTIVE_ITEM} DO {then}"


def _typed(text: str, columns: tuple[str, ...]) -> sa.TextClause:
    named = [sa.bindparam(name, type_=work_items.c[name].type) for name in columns]
    return sa.text(text).bindparams(*named)


@cache
def _sqlite_statement(columns: tuple[str, ...], take_over: bool) -> sa.Executable:
    c = work_items.c
    shared = ", ".join(f":{name}" for name in columns)
    text = (
        f"INSERT INTO work_items ({', '.join(columns)}, node_id, payload) "
        f"SELECT {shared}, json_extract(value, '$[0]'), json_extract(value, '$[1]') "
        # Without a WHERE, SQLite would read the ON after it as that of a join.
        f"FROM json_each(:own) WHERE true {_on_conflict(take_over)} "
        "RETURNING id, node_id, created_at, run_id"
    )
    return _typed(text, columns).columns(c.id, c.node_id, c.created_at, c.run_id)


@cache
def _group_statement(columns: tuple[str, ...], take_over: bool) -> sa.TextClause:
    shared = ", ".join(f":{name}" for name in columns)
    # Only an item that was taken over is older than this statement, or of another run.
    older = (
        "array_agg(created_at) AS times, array_agg(run_id) AS runs"
        if take_over
        else "NULL AS times, NULL AS runs"
    )
    text = (
        f"WITH recorded AS (INSERT INTO work_items ({', '.join(columns)}, node_id, payload) "
        f"SELECT {shared}, own.node_id, own.payload FROM ROWS FROM ("
        "unnest(CAST(string_to_array(:nodes, ',') AS uuid[])), "
        "jsonb_array_elements(CAST(:payloads AS jsonb))) AS own (node_id, payload) "
        f"{_on_conflict(take_over)} "
        "RETURNING id, node_id, created_at, run_id) "
        "SELECT array_agg(id) AS ids, string_agg(CAST(node_id AS text), ',') AS nodes, "
        f"{older} FROM recorded"
    )
    return _typed(text, columns)
