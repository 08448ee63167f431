"""Writing new work items, many in one statement.

A node's stage has at most one active item; a second one is either not recorded or takes over.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from penstock.documents import Stage
from penstock.store.columns import storable
from penstock.store.database import Tx
from penstock.store.schema import ACTIVE_ITEM, work_items
from penstock.work.items import ItemStatus, NewItem, WorkItem
from penstock.work.rows import NO_LEASE

# What differs from item to item, and its type as an array on Postgres.
_OWN = {
    "tenant_id": "text",
    "node_id": "uuid",
    "run_id": "bigint",
    "stage": "text",
    "priority": "integer",
    "payload": "jsonb",
}
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


def insert_items(
    tx: Tx, items: Sequence[NewItem], *, take_over: bool, **common: Any
) -> list[WorkItem]:
    """Record these; those that were recorded. `common` is what all of them have beside."""
    unique = {(item.node_id, item.stage): item for item in items}
    values = _fresh(tx.now) | common
    if tx.connection.dialect.name == "postgresql":
        found = _insert_arrays(tx, list(unique.values()), values, take_over)
    else:
        found = _insert_rows(tx, list(unique.values()), values, take_over)
    return [_item(row, unique[str(row.node_id), Stage(row.stage)]) for row in found]


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
    tx: Tx, items: Sequence[NewItem], values: Mapping[str, Any], take_over: bool
) -> Sequence[sa.Row[Any]]:
    insert = tx.insert(work_items)
    conflict: dict[str, Any] = {"index_elements": ["node_id", "stage"], "index_where": ACTIVE_ITEM}
    if take_over:
        fresh = {name: insert.excluded[name] for name in _TAKEN_OVER}
        statement = insert.on_conflict_do_update(**conflict, set_=fresh)
    else:
        statement = insert.on_conflict_do_nothing(**conflict)
    rows = [{**values, **_own_values(item)} for item in items]
    return tx.execute(statement.returning(*_returned()), rows).all()


def _own_values(item: NewItem) -> dict[str, Any]:
    return {name: getattr(item, name) for name in _OWN} | {"payload": dict(item.payload)}


def _insert_arrays(
    tx: Tx, items: Sequence[NewItem], values: Mapping[str, Any], take_over: bool
) -> Sequence[sa.Row[Any]]:
    """One array a column: a statement of fixed length is parsed and planned once, whereas a row
    of parameters for each item costs more to read than to insert."""
    arrays: dict[str, Any] = {name: [getattr(item, name) for item in items] for name in _OWN}
    arrays["payload"] = [json.dumps(storable(item.payload)) for item in items]
    return tx.execute(_statement(tuple(values), take_over), {**values, **arrays}).all()


@cache
def _statement(common: tuple[str, ...], take_over: bool) -> sa.TextClause:
    columns = ", ".join((*_OWN, *common))
    arrays = ", ".join(f"CAST(:{name} AS text[])" for name in _OWN)
    own = ", ".join(f"CAST(own.{name} AS {kind})" for name, kind in _OWN.items())
    shared = ", ".join(f":{name}" for name in common)
    fresh = ", ".join(f"{name} = excluded.{name}" for name in _TAKEN_OVER)
    then = f"UPDATE SET {fresh}" if take_over else "NOTHING"
    text = sa.text(
        f"INSERT INTO work_items ({columns}) SELECT {own}, {shared} "
        f"FROM unnest({arrays}) AS own ({', '.join(_OWN)}) "
        f"ON CONFLICT (node_id, stage) WHERE {ACTIVE_ITEM} DO {then} "
        "RETURNING id, node_id::text, stage, created_at"
    )
    texts = [sa.bindparam(name, type_=_TextArray()) for name in _OWN]
    typed = [sa.bindparam(name, type_=work_items.c[name].type) for name in common]
    return text.bindparams(*texts, *typed)


class _TextArray(sa.types.TypeDecorator[list[str]]):
    """Values of any kind as an array of texts, which the statement casts."""

    impl = postgresql.ARRAY(sa.Text)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> list[str | None]:
        del dialect
        return [None if one is None else str(one) for one in value]


def _returned() -> list[sa.ColumnElement[Any]]:
    c = work_items.c
    return [c.id, c.node_id, c.stage, c.created_at]


def _item(row: sa.Row[Any], new: NewItem) -> WorkItem:
    return WorkItem(
        id=row.id,
        tenant_id=new.tenant_id,
        node_id=new.node_id,
        stage=new.stage,
        run_id=new.run_id,
        priority=new.priority,
        attempts=0,
        rescues=0,
        payload=new.payload,
        enqueued_at=row.created_at,
    )
