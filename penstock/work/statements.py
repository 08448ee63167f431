"""The statements of every batch, built once: building them each time costs as much as sending them.

`:ids` and `:token` name the items of a claim, `:now` the time by the database's clock.
"""

from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from penstock.store.schema import work_items
from penstock.work.items import ItemStatus
from penstock.work.rows import NO_LEASE

_c = work_items.c


@cache
def lease_statement(dialect: str, lease: tuple[str, ...]) -> sa.Executable:
    """Items are leased; parameters `:lease_…` are the columns of the lease. Not in one statement
    with finding them: for that, Postgres would plan to read the whole table."""
    values = {name: sa.bindparam(f"lease_{name}", type_=_c[name].type) for name in lease}
    return sa.update(work_items).where(_among_ids(dialect)).values(values)


@cache
def start_statement(dialect: str) -> sa.Executable:
    """Items of a claim begin; the ids of those that are still its own."""
    begun = sa.update(work_items).where(*_held(dialect)).values(started_at=_param("now"))
    return begun.returning(_c.id)


@cache
def complete_statement(dialect: str) -> sa.Executable:
    """Items of a claim are complete; the ids of those that were still its own."""
    values = {name: value for name, value in NO_LEASE.items() if name != "started_at"}
    done = values | {
        "status": ItemStatus.COMPLETE,
        "outcome": sa.bindparam("how", type_=_c.outcome.type),
        "updated_at": _param("now"),
        "finished_at": _param("now"),
    }
    return sa.update(work_items).where(*_held(dialect)).values(done).returning(_c.id)


def _held(dialect: str) -> list[sa.ColumnElement[bool]]:
    ours = _c.lease_token == sa.bindparam("token", type_=_c.lease_token.type)
    return [_among_ids(dialect), ours, _c.status == ItemStatus.PROCESSING]


def _among_ids(dialect: str) -> sa.ColumnElement[bool]:
    if dialect != "postgresql":
        return _c.id.in_(sa.bindparam("ids", expanding=True))
    return _c.id == sa.any_(sa.bindparam("ids", type_=postgresql.ARRAY(_c.id.type)))


def _param(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=_c.updated_at.type)
