"""Whose turn it is: within one priority, tenants take turns, however much each of them has."""

import math
import random
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from penstock.store.database import Tx
from penstock.store.schema import WAITING_ITEM, work_items
from penstock.work.rows import item_columns

_c = work_items.c


def find_due(tx: Tx, due: sa.ColumnElement[bool], limit: int) -> list[sa.Row[Any]]:
    """Rows of what is due, locked where the database locks rows: the highest priority there is,
    an equal share of it for each tenant, its oldest first. A tenant alone gets all of it."""
    tops = _top_priorities(tx, due)
    if not tops:
        return []
    if len(tops) == 1:
        return tx.execute(_of_tenant(due, next(iter(tops)), limit)).all()  # type: ignore[return-value]
    highest = max(tops.values())
    tenants = [tenant for tenant, top in tops.items() if top == highest]
    return _share_out(tx, sa.and_(due, _c.priority == highest), tenants, limit)


def find_due_of(
    tx: Tx, due: sa.ColumnElement[bool], tenant_id: str, limit: int
) -> list[sa.Row[Any]]:
    """The same for one tenant: the highest priority first, then the oldest."""
    return list(tx.execute(_of_tenant(due, tenant_id, limit)))


def _top_priorities(tx: Tx, due: sa.ColumnElement[bool]) -> dict[str, int]:
    """The highest priority that each tenant has something due of.

    The tenants are found by jumping from one to the next in the index; to look at every waiting
    item for that would take longer the more there are.
    """
    first = sa.select(sa.func.min(_c.tenant_id).label("tenant")).where(WAITING_ITEM)
    found = first.cte("tenants", recursive=True)
    following = (
        sa.select(sa.func.min(_c.tenant_id))
        .where(WAITING_ITEM, _c.tenant_id > found.c.tenant)
        .scalar_subquery()
    )
    tenants = found.union_all(sa.select(following).where(found.c.tenant.is_not(None)))
    top = (
        sa.select(_c.priority)
        .where(due, _c.tenant_id == tenants.c.tenant)
        .order_by(_c.priority.desc(), _c.id)
        .limit(1)
        .scalar_subquery()
    )
    query = sa.select(tenants.c.tenant, top.label("top")).where(tenants.c.tenant.is_not(None))
    return {row.tenant: row.top for row in tx.execute(query) if row.top is not None}


def _share_out(
    tx: Tx, due: sa.ColumnElement[bool], tenants: Sequence[str], limit: int
) -> list[sa.Row[Any]]:
    chosen = random.sample(tenants, min(len(tenants), limit))
    share = math.ceil(limit / len(chosen))
    rows = _take(tx, due, chosen, share)[:limit]
    # Those that had more than their share get what the others left over.
    taken = [row.id for row in rows]
    had_more = [tenant for tenant in chosen if _count(rows, tenant) == share]
    if had_more and len(rows) < limit:
        left = math.ceil((limit - len(rows)) / len(had_more))
        rows += _take(tx, sa.and_(due, _c.id.not_in(taken)), had_more, left)
    return rows[:limit]


def _take(
    tx: Tx, due: sa.ColumnElement[bool], tenants: Sequence[str], share: int
) -> list[sa.Row[Any]]:
    if tx.connection.dialect.name != "postgresql":
        return [row for tenant in tenants for row in tx.execute(_of_tenant(due, tenant, share))]
    names = sa.func.unnest(sa.cast(list(tenants), postgresql.ARRAY(sa.Text)))
    turn = names.table_valued("tenant", name="turn").render_derived()
    share_of = _of_tenant(due, turn.c.tenant, share).lateral("share")
    return list(tx.execute(sa.select(*share_of.c).select_from(turn.join(share_of, sa.true()))))


def _of_tenant(due: sa.ColumnElement[bool], tenant: Any, limit: int) -> sa.Select[Any]:
    return (
        sa.select(*item_columns())
        .where(due, _c.tenant_id == tenant)
        .order_by(_c.priority.desc(), _c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )


def _count(rows: Sequence[sa.Row[Any]], tenant: str) -> int:
    return sum(row.tenant_id == tenant for row in rows)
