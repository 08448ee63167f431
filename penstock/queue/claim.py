"""Which items a claim takes: priority first, then fair turns between tenants, then what was
interrupted, then age.

Statements are built once: building them each time costs as much as sending them. Parameters:
`:now`, `:tenant`, `:tenants`, `:most` (how many), `:top` (a priority), `:run`, `:runs` (not of
these), `:served` (configurations), `:ids` (only these), `:taken` (not these), `:token` (of the
claim).
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from penstock.documents import Stage
from penstock.queue.items import NO_LEASE, ItemStatus, item_columns
from penstock.store.database import Tx
from penstock.store.schema import ACTIVE_ITEM, WAITING_ITEM, work_items

_c = work_items.c
_NOW: sa.BindParameter[Any] = sa.bindparam("now", type_=_c.updated_at.type)
# Within one priority, a document whose work was interrupted does not wait behind the backlog.
_ORDER = (_c.priority.desc(), _c.interrupted.desc(), _c.id)
# Instead of a run's id: items that belong to no run.
NO_RUN = 0
# How many claims use what SoleTenantCache knows.
CLAIMS_REMEMBERED = 3


@dataclass(frozen=True, slots=True)
class ClaimFilter:
    """The shape of a claim's condition; its values are parameters of the statement."""

    dialect: str
    stages: tuple[Stage, ...]
    of_run: bool = False
    of_no_run: bool = False
    not_of_runs: bool = False
    only_served: bool = False
    only: bool = False

    def condition(self) -> sa.ColumnElement[bool]:
        found: list[Any] = [
            WAITING_ITEM,
            _c.run_at <= _NOW,
            _c.stage.in_(self.stages),
        ]
        if self.of_run:
            # Every waiting item is active: stated too, so that the index of a run's items is used.
            found += [ACTIVE_ITEM, _c.run_id == sa.bindparam("run", type_=_c.run_id.type)]
        if self.of_no_run:
            found.append(_c.run_id.is_(None))
        if self.not_of_runs:
            found.append(sa.or_(_c.run_id.is_(None), ~self.among(_c.run_id, "runs")))
        if self.only_served:
            found.append(sa.or_(_c.requires.is_(None), self.among(_c.requires, "served")))
        if self.only:
            found.append(self.among(_c.id, "ids"))
        return sa.and_(*found)

    def among(self, column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
        return _among(self.dialect, column, name)


def _among(dialect: str, column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
    """Whether a column has one of the values of a parameter."""
    if dialect != "postgresql":
        return column.in_(sa.bindparam(name, expanding=True))
    return column == sa.any_(sa.bindparam(name, type_=postgresql.ARRAY(column.type)))


@cache
def top_priorities(wanted: ClaimFilter) -> sa.Select[Any]:
    """Each tenant that has something waiting, with the highest priority of what is due.

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
        .where(wanted.condition(), _c.tenant_id == tenants.c.tenant)
        .order_by(*_ORDER)
        .limit(1)
        .scalar_subquery()
    )
    return sa.select(tenants.c.tenant, top.label("top")).where(tenants.c.tenant.is_not(None))


@cache
def of_tenant(wanted: ClaimFilter) -> sa.Select[Any]:
    """What is due of one tenant, in its order."""
    return _ordered(wanted.condition(), sa.bindparam("tenant", type_=sa.Text()))


@cache
def share_of_tenant(wanted: ClaimFilter, again: bool) -> sa.Select[Any]:
    """The share of one tenant in one priority; `again`: without those that were taken already."""
    return _ordered(_share(wanted, again), sa.bindparam("tenant", type_=sa.Text()))


@cache
def shares_of_tenants(wanted: ClaimFilter, again: bool) -> sa.Select[Any]:
    """The shares of several tenants in one statement; Postgres only."""
    names = sa.func.unnest(sa.bindparam("tenants", type_=postgresql.ARRAY(sa.Text)))
    turn = names.table_valued("tenant", name="turn").render_derived()
    share = _ordered(_share(wanted, again), turn.c.tenant).lateral("share")
    return sa.select(*share.c).select_from(turn.join(share, sa.true()))


def _share(wanted: ClaimFilter, again: bool) -> sa.ColumnElement[bool]:
    top = _c.priority == sa.bindparam("top", type_=_c.priority.type)
    fresh = ~wanted.among(_c.id, "taken") if again else sa.true()
    return sa.and_(wanted.condition(), top, fresh)


def _ordered(due: sa.ColumnElement[bool], tenant: Any) -> sa.Select[Any]:
    return (
        sa.select(*item_columns())
        .where(due, _c.tenant_id == tenant)
        .order_by(*_ORDER)
        .limit(sa.bindparam("most", type_=sa.Integer()))
        .with_for_update(skip_locked=True)
    )


def lease_items(tx: Tx, lease: Mapping[str, Any], ids: Sequence[int]) -> None:
    """Write these columns of a lease to items that `FairClaim` found. Not in one statement with
    finding them: for that, Postgres would plan to read the whole table."""
    if ids:
        statement = _lease_statement(tx.connection.dialect.name, tuple(lease))
        named = {f"lease_{name}": value for name, value in lease.items()}
        tx.execute(statement, named | {"ids": ids})


@cache
def _lease_statement(dialect: str, lease: tuple[str, ...]) -> sa.Executable:
    values = {name: sa.bindparam(f"lease_{name}", type_=_c[name].type) for name in lease}
    return sa.update(work_items).where(_among(dialect, _c.id, "ids")).values(values)


@cache
def start_statement(dialect: str) -> sa.Executable:
    """Marks items of a claim as started; the ids of those that it still holds."""
    begun = sa.update(work_items).where(*_held(dialect)).values(started_at=_NOW)
    return begun.returning(_c.id)


@cache
def complete_statement(dialect: str) -> sa.Executable:
    """Completes items of a claim; the ids of those that it still held. When they were started is
    kept, to show how long they took."""
    values = {name: value for name, value in NO_LEASE.items() if name != "started_at"}
    done = values | {
        "status": ItemStatus.COMPLETE,
        "outcome": sa.bindparam("how", type_=_c.outcome.type),
        "updated_at": _NOW,
        "finished_at": _NOW,
    }
    return sa.update(work_items).where(*_held(dialect)).values(done).returning(_c.id)


def _held(dialect: str) -> list[sa.ColumnElement[bool]]:
    ours = _c.lease_token == sa.bindparam("token", type_=_c.lease_token.type)
    return [_among(dialect, _c.id, "ids"), ours, _c.status == ItemStatus.PROCESSING]


class SoleTenantCache:
    """Remembers for a few claims that only one tenant had work, to spare the query. Work of another
    tenant that arrives meanwhile waits for no more than these few batches."""

    def __init__(self) -> None:
        self._known: dict[ClaimFilter, tuple[str, int]] = {}

    def recall(self, wanted: ClaimFilter) -> str | None:
        tenant, left = self._known.get(wanted, ("", 0))
        if left == 0:
            return None
        self._known[wanted] = (tenant, left - 1)
        return tenant

    def note(self, wanted: ClaimFilter, tenant: str | None) -> None:
        if tenant is None:
            self._known.pop(wanted, None)
        else:
            self._known[wanted] = (tenant, CLAIMS_REMEMBERED)


@dataclass(frozen=True, slots=True)
class FairClaim:
    """Finds the rows that are claimed next, locked where the database locks rows."""

    tx: Tx
    wanted: ClaimFilter
    named: Mapping[str, Any]
    """The parameters of the filter."""
    alone: SoleTenantCache
    max_rescues: int
    least_suspects: int = 1
    """How many rescued items are taken together before they are halved further."""

    def find(self, limit: int) -> list[sa.Row[Any]]:
        """The highest priority there is, an equal share of it for each tenant. A tenant alone gets
        all of the batch."""
        known = self.alone.recall(self.wanted)
        if known is not None and (found := self.find_of(known, limit)):
            return found
        rows = self.tx.execute(top_priorities(self.wanted), dict(self.named))
        tops = {row.tenant: row.top for row in rows if row.top is not None}
        single = next(iter(tops)) if len(tops) == 1 else None
        self.alone.note(self.wanted, single)
        if single is not None:
            return self.find_of(single, limit)
        return self._share_out(tops, limit) if tops else []

    def find_of(self, tenant_id: str, limit: int) -> list[sa.Row[Any]]:
        """The same for one tenant."""
        named = {**self.named, "tenant": tenant_id, "most": limit}
        return self._without_suspects(self.tx.execute(of_tenant(self.wanted), named).all())

    def _share_out(self, tops: Mapping[str, int], limit: int) -> list[sa.Row[Any]]:
        top = max(tops.values())
        tenants = [tenant for tenant, highest in tops.items() if highest == top]
        chosen = random.sample(tenants, min(len(tenants), limit))
        share = math.ceil(limit / len(chosen))
        rows = self._find_shares(chosen, top, share)[:limit]
        # Those that had more than their share get what the others left over.
        had_more = [tenant for tenant in chosen if _count(rows, tenant) == share]
        while had_more and len(rows) < limit:
            left = math.ceil((limit - len(rows)) / len(had_more))
            more = self._find_shares(had_more, top, left, taken=[row.id for row in rows])
            had_more = [tenant for tenant in had_more if _count(more, tenant) == left]
            rows += more
        return self._without_suspects(rows[:limit])

    def _find_shares(
        self, tenants: Sequence[str], top: int, share: int, taken: Sequence[int] | None = None
    ) -> list[sa.Row[Any]]:
        again = taken is not None
        named = {**self.named, "top": top, "most": share} | ({"taken": taken} if again else {})
        if self.wanted.dialect == "postgresql":
            shares = shares_of_tenants(self.wanted, again)
            return [*self.tx.execute(shares, {**named, "tenants": list(tenants)}).all()]
        one = share_of_tenant(self.wanted, again)
        found = (self.tx.execute(one, {**named, "tenant": tenant}) for tenant in tenants)
        return [row for rows in found for row in rows]

    def _without_suspects(self, rows: Sequence[sa.Row[Any]]) -> list[sa.Row[Any]]:
        """Items that were never rescued, or half of those that were rescued as often as the first,
        or one that has no rescue left. The first one decides; it is of the tenant whose turn it is,
        so that one tenant's rescued items do not hold up the others."""
        if not rows or not rows[0].rescues:
            return [row for row in rows if not row.rescues]
        if rows[0].rescues >= self.max_rescues:
            return [rows[0]]
        suspects = [row for row in rows if row.rescues == rows[0].rescues]
        return suspects[: max(self.least_suspects, math.ceil(len(suspects) / 2))]


def _count(rows: Sequence[sa.Row[Any]], tenant: str) -> int:
    return sum(row.tenant_id == tenant for row in rows)
