"""What a claim looks for, and the statements that find it, each built once for its kind.

Parameters: `:now`, `:tenant`, `:tenants`, `:most` (how many), `:top` (a priority), `:run`, `:runs`
(not of these), `:ids` (only these), `:taken` (not these).
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from penstock.documents import Stage
from penstock.store.schema import WAITING_ITEM, work_items
from penstock.work.rows import item_columns

_c = work_items.c
# Instead of a run: items that belong to none.
NO_RUN = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """The kind of a claim; what it names is given with the parameters."""

    dialect: str
    stages: tuple[Stage, ...]
    of_run: bool = False
    of_no_run: bool = False
    not_of_runs: bool = False
    only: bool = False

    def condition(self) -> sa.ColumnElement[bool]:
        found: list[Any] = [
            WAITING_ITEM,
            _c.run_at <= sa.bindparam("now", type_=_c.run_at.type),
            _c.stage.in_(self.stages),
        ]
        if self.of_run:
            found.append(_c.run_id == sa.bindparam("run", type_=_c.run_id.type))
        if self.of_no_run:
            found.append(_c.run_id.is_(None))
        if self.not_of_runs:
            found.append(sa.or_(_c.run_id.is_(None), ~self.among(_c.run_id, "runs")))
        if self.only:
            found.append(self.among(_c.id, "ids"))
        return sa.and_(*found)

    def among(self, column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
        """Whether a column has one of the values of a parameter."""
        if self.dialect != "postgresql":
            return column.in_(sa.bindparam(name, expanding=True))
        array = sa.bindparam(name, type_=postgresql.ARRAY(column.type))
        return column == sa.any_(array)


def wanted_by(
    dialect: str,
    stages: Collection[Stage],
    run_id: int | None,
    not_runs: Collection[int],
    only: Collection[int] | None,
) -> Wanted:
    return Wanted(
        dialect,
        tuple(stage for stage in Stage if stage in stages),
        of_run=bool(run_id),
        of_no_run=run_id == NO_RUN,
        not_of_runs=bool(not_runs),
        only=only is not None,
    )


@cache
def top_priorities(wanted: Wanted) -> sa.Select[Any]:
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
        .order_by(_c.priority.desc(), _c.id)
        .limit(1)
        .scalar_subquery()
    )
    return sa.select(tenants.c.tenant, top.label("top")).where(tenants.c.tenant.is_not(None))


@cache
def of_tenant(wanted: Wanted) -> sa.Select[Any]:
    """What is due of one tenant: the highest priority first, then the oldest."""
    return _ordered(wanted.condition(), sa.bindparam("tenant", type_=sa.Text()))


@cache
def share_of_tenant(wanted: Wanted, again: bool) -> sa.Select[Any]:
    """The share of one tenant in one priority; `again`: without those that were taken already."""
    return _ordered(_share(wanted, again), sa.bindparam("tenant", type_=sa.Text()))


@cache
def shares_of_tenants(wanted: Wanted, again: bool) -> sa.Select[Any]:
    """The shares of several tenants in one statement, where the database can do that."""
    names = sa.func.unnest(sa.bindparam("tenants", type_=postgresql.ARRAY(sa.Text)))
    turn = names.table_valued("tenant", name="turn").render_derived()
    share = _ordered(_share(wanted, again), turn.c.tenant).lateral("share")
    return sa.select(*share.c).select_from(turn.join(share, sa.true()))


def _share(wanted: Wanted, again: bool) -> sa.ColumnElement[bool]:
    top = _c.priority == sa.bindparam("top", type_=_c.priority.type)
    fresh = ~wanted.among(_c.id, "taken") if again else sa.true()
    return sa.and_(wanted.condition(), top, fresh)


def _ordered(due: sa.ColumnElement[bool], tenant: Any) -> sa.Select[Any]:
    return (
        sa.select(*item_columns())
        .where(due, _c.tenant_id == tenant)
        .order_by(_c.priority.desc(), _c.id)
        .limit(sa.bindparam("most", type_=sa.Integer()))
        .with_for_update(skip_locked=True)
    )
