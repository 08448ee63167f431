"""What the product asks of its database: its statements, and what carrying them out takes."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from penstock.store.database import Database
from penstock.store.schema import COMPLETE_ITEM, ITEM_OF_RUN, metadata

_EXPLAINED = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b")
_SQLITE_SCAN = re.compile(r"SCAN (\w+)(?:.* INDEX (\w+))?")
_STEPS = 1000


@dataclass(slots=True)
class Watch:
    """Listens while something is done, and then looks at the plans of what it heard."""

    database: Database
    costs: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By what was done, in steps of SQLite's programs; of Postgres by statement, as it plans."""
    read_whole: dict[tuple[str, str], str] = field(default_factory=dict)
    """Statements that go through a whole table, by what was done and the table."""
    read_by_index_alone: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Of Postgres: indexes that were enough by themselves, by what was done."""
    _heard: dict[str, dict[str, Any]] = field(default_factory=lambda: defaultdict(dict))
    _doing: str | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """To every engine there is, for the product opens its own; then look at the plans."""
        sa.event.listen(sa.Engine, "before_cursor_execute", self._hear)
        try:
            yield
        finally:
            sa.event.remove(sa.Engine, "before_cursor_execute", self._hear)
        with self.database.engine.connect() as connection:
            for what, statements in self._heard.items():
                for statement, given in statements.items():
                    self._look(connection, what, statement, given)

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        self._doing = what
        yield
        self._doing = None

    def _hear(
        self, connection: sa.Connection, _c: Any, statement: str, given: Any, _x: Any, many: bool
    ) -> None:
        if self._doing is None or not _EXPLAINED.match(statement):
            return
        of_many = many and not isinstance(given, dict) and isinstance(given[0], tuple | dict)
        self._heard[self._doing].setdefault(statement, given[0] if of_many else given)
        if self.database.is_sqlite:
            driver: Any = connection.connection.dbapi_connection
            driver.set_progress_handler(self._count, _STEPS)

    def _count(self) -> int:
        if self._doing is not None:
            self.costs[self._doing] += _STEPS
        return 0

    def _look(self, connection: sa.Connection, what: str, statement: str, given: Any) -> None:
        text = " ".join(statement.split())
        if self.database.is_sqlite:
            tables = _scanned_by_sqlite(connection, statement, given)
        else:
            plan = _plan_of_postgres(connection, statement, given)
            self.costs[f"{what}: {text}"] = plan["Total Cost"]
            parts = list(_parts_of(plan))
            found = (one for one in parts if one["Node Type"] == "Seq Scan")
            tables = {str(one["Relation Name"]) for one in found}
            alone = (one for one in parts if one["Node Type"] == "Index Only Scan")
            self.read_by_index_alone[what] |= {str(one["Index Name"]) for one in alone}
        self.read_whole |= {(what, table): text for table in tables}


def _scanned_by_sqlite(connection: sa.Connection, statement: str, given: Any) -> set[str]:
    plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given).all()
    found = [_SQLITE_SCAN.match(row[3]) for row in plan]
    tables = {one[1] for one in found if one and one[2] not in _small_indexes()}
    return tables | ({"texts"} if _is_text_index_asked_for_every_row(plan) else set())


def _is_text_index_asked_for_every_row(plan: Sequence[sa.Row[Any]]) -> bool:
    """Whether it stands inside a loop: each time it goes through all that match. What the index
    does is not among the steps that are counted."""
    loops: set[int] = set()
    for _, parent, _, detail in plan:
        if detail.startswith("SCAN texts_fts") and parent in loops:
            return True
        if detail.startswith(("SCAN ", "SEARCH ")):
            loops.add(parent)
    return False


def _plan_of_postgres(connection: sa.Connection, statement: str, given: Any) -> dict[str, Any]:
    answer = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", given).scalar_one()
    plan: dict[str, Any] = (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]
    return plan


def _parts_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _parts_of(part)


def _small_indexes() -> set[str]:
    """Indexes of a few rows: of what is not done, or came to nothing."""
    indexes = (index for table in metadata.tables.values() for index in table.indexes)
    conditions = {str(one.name): one.dialect_options["sqlite"]["where"] for one in indexes}
    large = (COMPLETE_ITEM, ITEM_OF_RUN)
    return {
        name
        for name, condition in conditions.items()
        if condition is not None and all(condition is not one for one in large)
    }
