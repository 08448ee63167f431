"""Writing new work items, many in one statement.

A node's stage has at most one active item; a second one is either not recorded or takes over.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from penstock.documents import Stage
from penstock.store.columns import storable
from penstock.store.database import Tx
from penstock.store.schema import ACTIVE_ITEM, work_items
from penstock.work.items import ItemStatus, NewItem, WorkItem
from penstock.work.rows import NO_LEASE

_TAKEN_OVER = (
    "run_id",
    "payload",
    "priority",
    "status",
    "attempts",
    "rescues",
    "run_at",
    "updated_at",
    *NO_LEASE,
)
# What items that are enqueued together nearly always share.
_GROUP = ("tenant_id", "run_id", "stage", "priority")
# How JSON writes a NUL, and half of a pair of surrogates, which no database takes. Whole pairs
# begin alike, so this only says where to look more closely.
_SUSPICIOUS = ("\\u0000", "\\ud")


@dataclass(frozen=True, slots=True)
class Inserted:
    """An item that was recorded."""

    id: int
    new: NewItem
    enqueued_at: datetime

    @property
    def key(self) -> tuple[str, Stage]:
        return self.new.node_id, self.new.stage

    def as_item(self) -> WorkItem:
        new = self.new
        return WorkItem(
            self.id,
            new.tenant_id,
            new.node_id,
            new.stage,
            new.run_id,
            new.priority,
            attempts=0,
            rescues=0,
            payload=new.payload,
            enqueued_at=self.enqueued_at,
        )


def insert_items(
    tx: Tx, items: Iterable[NewItem], *, take_over: bool, **common: Any
) -> list[Inserted]:
    """Record these; those that were recorded. `common` is what all of them have beside."""
    unique = {(item.node_id, item.stage): item for item in items}
    values = _fresh(tx.now) | common
    if tx.connection.dialect.name != "postgresql":
        return _insert_rows(tx, unique, values, take_over)
    groups: dict[tuple[Any, ...], dict[str, NewItem]] = {}
    for item in unique.values():
        shared = (item.tenant_id, item.run_id, item.stage, item.priority)
        groups.setdefault(shared, {})[item.node_id] = item
    inserted: list[Inserted] = []
    for shared, group in groups.items():
        in_common = values | dict(zip(_GROUP, shared, strict=True))
        inserted += _insert_group(tx, group, in_common, take_over)
    return inserted


def _fresh(now: datetime) -> dict[str, Any]:
    return NO_LEASE | {
        "status": ItemStatus.PENDING,
        "attempts": 0,
        "rescues": 0,
        "run_at": now,
        "created_at": now,
        "updated_at": now,
    }


def _insert_rows(
    tx: Tx,
    items: Mapping[tuple[str, Stage], NewItem],
    values: Mapping[str, Any],
    take_over: bool,
) -> list[Inserted]:
    rows = [{**values, **_own(item)} for item in items.values()]
    found = tx.execute(_row_statement(take_over), rows)
    return [Inserted(row.id, items[row.node_id, Stage(row.stage)], row.created_at) for row in found]


def _own(item: NewItem) -> dict[str, Any]:
    shared = {name: getattr(item, name) for name in _GROUP}
    return shared | {"node_id": item.node_id, "payload": dict(item.payload)}


@cache
def _row_statement(take_over: bool) -> sa.Executable:
    insert = sqlite.insert(work_items)
    conflict: dict[str, Any] = {"index_elements": ["node_id", "stage"], "index_where": ACTIVE_ITEM}
    if take_over:
        fresh = {name: insert.excluded[name] for name in _TAKEN_OVER}
        statement = insert.on_conflict_do_update(**conflict, set_=fresh)
    else:
        statement = insert.on_conflict_do_nothing(**conflict)
    c = work_items.c
    return statement.returning(c.id, c.node_id, c.stage, c.created_at)


def _insert_group(
    tx: Tx, items: Mapping[str, NewItem], values: Mapping[str, Any], take_over: bool
) -> list[Inserted]:
    """Items that differ in node and payload alone: two parameters, and one row back, for any number
    of them. A row of parameters for each would cost more to read than to insert."""
    named = {"nodes": ",".join(items), "payloads": _as_json(items.values())}
    row = tx.execute(_group_statement(tuple(values), take_over), {**values, **named}).one()
    if row.ids is None:
        return []
    times: Sequence[datetime] = row.times or [tx.now] * len(row.ids)
    recorded = zip(row.ids, row.nodes.split(","), times, strict=True)
    return [Inserted(number, items[node_id], at) for number, node_id, at in recorded]


def _as_json(items: Iterable[NewItem]) -> str:
    payloads = [item.payload for item in items]
    text = json.dumps(payloads, default=dict)
    if any(sign in text for sign in _SUSPICIOUS):
        return json.dumps(storable(payloads))
    return text


@cache
def _group_statement(columns: tuple[str, ...], take_over: bool) -> sa.TextClause:
    shared = ", ".join(f":{name}" for name in columns)
    fresh = ", ".join(f"{name} = excluded.{name}" for name in _TAKEN_OVER)
    then = f"UPDATE SET {fresh}" if take_over else "NOTHING"
    # Only what was taken over is older than this statement.
    times = "array_agg(created_at)" if take_over else "NULL"
    text = sa.text(
        f"WITH recorded AS (INSERT INTO work_items ({', '.join(columns)}, node_id, payload) "
        f"SELECT {shared}, own.node_id, own.payload FROM ROWS FROM ("
        "unnest(CAST(string_to_array(:nodes, ',') AS uuid[])), "
        "jsonb_array_elements(CAST(:payloads AS jsonb))) AS own (node_id, payload) "
        f"ON CONFLICT (node_id, stage) WHERE {ACTIVE_ITEM} DO {then} "
        "RETURNING id, node_id, created_at) "
        "SELECT array_agg(id) AS ids, string_agg(CAST(node_id AS text), ',') AS nodes, "
        f"{times} AS times FROM recorded"
    )
    typed = [sa.bindparam(name, type_=work_items.c[name].type) for name in columns]
    return text.bindparams(*typed)
