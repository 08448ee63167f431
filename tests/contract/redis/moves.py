"""Makes moves of work items, and reads what became of them in Redis."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from redis import Redis

from penstock.documents import Stage
from penstock.queue.items import (
    ACTIVE_STATUSES,
    NO_PAYLOAD,
    ItemStatus,
    StatusChange,
    WorkItem,
    item_columns,
    item_from,
)
from penstock.redis.keys import Queue
from penstock.store.database import Database
from penstock.store.schema import work_items
from tests.factories import NOON, TENANT, make_fault

RETRY_SECONDS = 30
Condition = sa.ColumnElement[bool] | sa.TextClause


def make_work(job_id: int = 1, **values: Any) -> WorkItem:
    item = WorkItem(
        id=job_id,
        tenant_id=TENANT,
        node_id=f"node-{job_id}",
        stage=Stage.EXTRACT,
        run_id=None,
        priority=0,
        attempts=0,
        rescues=0,
        payload=NO_PAYLOAD,
        enqueued_at=NOON,
    )
    return replace(item, **values)


def move(item: WorkItem, status: ItemStatus, second: float = 0.0) -> StatusChange:
    """So many seconds after noon."""
    at = NOON + timedelta(seconds=second)
    return StatusChange(
        item,
        status,
        at,
        run_at=due(at) if status is ItemStatus.RETRY_PENDING else None,
        fault=make_fault() if status is ItemStatus.FAILED else None,
    )


def due(at: datetime) -> datetime:
    return at + timedelta(seconds=RETRY_SECONDS)


def read_jobs(client: Redis, key: str) -> list[int]:
    """The ids in a list or ZSET, from left to right, or soonest first."""
    texts = read_retries(client, key) if key.endswith(":retry") else client.lrange(key, 0, -1)
    return [json.loads(text)["job_id"] for text in texts]


def read_retries(client: Redis, key: str) -> dict[str, float]:
    """By payload, when it is due; soonest first."""
    found: list[Any] = client.zrange(key, 0, -1, withscores=True)
    return dict(found)


def read_state(client: Redis) -> dict[str, Any]:
    """Every key that operators know, with its value; the bookkeeping is left out."""
    return {
        key: _read_value(client, key)
        for key in client.scan_iter()
        if key.rpartition(":")[2] not in ("jobs", "ended", "reserved")
    }


def _read_value(client: Redis, key: str) -> Any:
    if key.endswith(":retry"):
        return read_retries(client, key)
    if key.endswith((":queue", ":dlq")):
        return client.lrange(key, 0, -1)
    return client.get(key)


def read_moves(database: Database, *conditions: Condition) -> list[StatusChange]:
    """The items of a database as they stand, as if told now, in the order they came."""
    more = (work_items.c.status, work_items.c.updated_at, work_items.c.run_at)
    query = (
        sa.select(*item_columns(), *more)
        .where(*conditions)
        .order_by(work_items.c.updated_at, work_items.c.id)
    )
    with database.read() as tx:
        return [_move_of(row) for row in tx.execute(query)]


def _move_of(row: sa.Row[Any]) -> StatusChange:
    status = ItemStatus(row.status)
    fault = make_fault() if status is ItemStatus.FAILED else None
    return StatusChange(item_from(row), status, row.updated_at, run_at=row.run_at, fault=fault)


def expect_state(moves: Sequence[StatusChange]) -> dict[str, Any]:
    """What Redis should hold after these, each of another job, in the order they were told."""
    state: dict[str, Any] = {}
    for told in moves:
        queue, item = Queue.of(told.item.stage), told.item
        if told.status is ItemStatus.PENDING:
            state.setdefault(f"{queue}:queue", []).insert(0, expect_payload(item))
        if told.status is ItemStatus.RETRY_PENDING:
            assert told.run_at is not None
            state.setdefault(f"{queue}:retry", {})[expect_payload(item)] = told.run_at.timestamp()
        if told.status in ACTIVE_STATUSES:
            state[f"{queue}:pending:{item.node_id}"] = str(item.id)
            counter = queue.tenant_key(item.tenant_id)
            state[counter] = str(int(state.get(counter, 0)) + 1)
    return state


def expect_payload(item: WorkItem) -> str:
    fields = {
        "job_id": item.id,
        "node_id": item.node_id,
        "tenant_id": item.tenant_id,
        "priority": item.priority,
        "attempts": item.attempts,
        "enqueued_at": item.enqueued_at.isoformat(),
    }
    return json.dumps(fields, separators=(",", ":"))
