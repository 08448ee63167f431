"""When a database may not be moved, and whether all of it has arrived."""

import sqlalchemy as sa

from penstock.errors import StoreError, UsageError
from penstock.settings import mask_url
from penstock.store.database import Database, Tx
from penstock.store.migration import current_revision
from penstock.store.moving_rows import count_rows, moved_tables
from penstock.store.schema import (
    ACTIVE_RUN,
    LEASED_ITEM,
    metadata,
    runs,
    sources,
    work_items,
    workers,
)

_SHOWN = 5


def refuse_same(source: Database, target: Database) -> None:
    if source.engine.url == target.engine.url:
        raise UsageError(
            f"{mask_url(target.url)} is the database that is used now: name another one, "
            "or name the one to move from in PENSTOCK_DSN"
        )


def refuse_busy(source: sa.Connection) -> None:
    """Whoever works on would go on writing to the old database."""
    _refuse_active_runs(source)
    _refuse_leased_items(source)


def _refuse_active_runs(source: sa.Connection) -> None:
    joined = runs.join(sources, sources.c.id == runs.c.source_id)
    active = sa.select(runs.c.id, sources.c.name).select_from(joined).where(ACTIVE_RUN)
    found = [f"{row.id} ({row.name})" for row in source.execute(active.order_by(runs.c.id))]
    if found:
        raise StoreError(
            f"a database is moved only when no run is active, and these are: {_short(found)}. "
            "Wait until they end, go on with one that was interrupted (`penstock resume RUN`), "
            "or give one up (`penstock runs abort RUN`)"
        )


def _refuse_leased_items(source: sa.Connection) -> None:
    owner, count = work_items.c.lease_owner, sa.func.count().label("jobs")
    leased = sa.select(owner, count).where(LEASED_ITEM).group_by(owner).order_by(owner)
    found = [f"{row.lease_owner} ({row.jobs} jobs)" for row in source.execute(leased)]
    if found:
        raise StoreError(
            "a database is moved only when nobody is working on it, and these workers hold jobs: "
            f"{_short(found)}. Stop them (Ctrl-C, or `penstock down`); what a dead one held is "
            "taken back by `penstock maintain`, as soon as its lease has run out"
        )


def refuse_foreign(target: Database) -> None:
    """Our tables cannot be made where somebody else's have their names."""
    if current_revision(target) is not None:
        return
    with target.read() as tx:
        taken = sorted(metadata.tables.keys() & sa.inspect(tx.connection).get_table_names())
    if taken:
        raise StoreError(
            f"the database {mask_url(target.url)} has tables of another program "
            f"({_short(taken)}): name an empty database, as `createdb NAME` makes one"
        )


def reserve(tx: Tx, target: Database) -> int:
    """Keep others from writing to the target, which must be empty; how many workers it has.

    Workers may wait there for work already, as those of `penstock up` do.
    """
    wanted = [table for table in moved_tables() if table is not workers]
    if not target.is_sqlite:
        names = ", ".join(table.name for table in wanted)
        tx.connection.exec_driver_sql(f"LOCK TABLE {names} IN SHARE ROW EXCLUSIVE MODE")
    counted = [(table.name, count_rows(tx.connection, table)) for table in wanted]
    found = [f"{count} in {name}" for name, count in counted if count]
    if found:
        raise StoreError(
            f"the database {mask_url(target.url)} is not empty, it has rows: {_short(found)}. "
            "Name an empty database, as `createdb NAME` makes one; nothing was changed"
        )
    return count_rows(tx.connection, workers)


def compare_counts(source: Database, tx: Tx, others: int) -> None:
    """The target has what the source has by now, and `others` workers beside it."""
    with source.read() as now:
        refuse_busy(now.connection)
        there = {table.name: count_rows(now.connection, table) for table in moved_tables()}
    there[workers.name] += others
    for table in moved_tables():
        arrived = count_rows(tx.connection, table)
        if arrived != there[table.name]:
            raise StoreError(
                f"{table.name} has {there[table.name]} rows, and {arrived} were copied: something "
                "was written meanwhile. Nothing was moved: stop every program that uses the "
                "database, and try again"
            )


def _short(things: list[str]) -> str:
    more = f" and {len(things) - _SHOWN} more" if len(things) > _SHOWN else ""
    return ", ".join(things[:_SHOWN]) + more
