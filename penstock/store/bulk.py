"""Statements for many rows at once, bound a column at a time.

SQLAlchemy calls a converter for every value of every row, one row after the other; of a document's
way through the stages, that was a quarter of the time outside parsers and models.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler

from penstock.store.database import Tx

Convert: TypeAlias = Callable[[Any], Any]


class BulkStatement:
    """An INSERT or UPDATE that is written once for each database and set of columns."""

    def __init__(self, build: Callable[..., sa.Insert | sa.Update]) -> None:
        """`build` is called with the transaction and whatever `execute` is given beside it, which
        has to be hashable."""
        self._build = build
        self._prepared: dict[tuple[Any, ...], _Prepared] = {}

    def execute(self, tx: Tx, rows: Sequence[Mapping[str, Any]], *variant: Any) -> None:
        """Execute it for these rows, which all have the same keys."""
        if not rows:
            return
        dialect = tx.connection.dialect
        key = (dialect.name, tuple(rows[0]), variant)
        if key not in self._prepared:
            self._prepared[key] = _Prepared(self._build(tx, *variant), dialect, tuple(rows[0]))
        prepared = self._prepared[key]
        tx.connection.exec_driver_sql(prepared.sql, prepared.bind(rows))


class _Prepared:
    """The text of a statement, and how each of its parameters is converted."""

    def __init__(
        self, statement: sa.Insert | sa.Update, dialect: Dialect, keys: tuple[str, ...]
    ) -> None:
        given = keys if isinstance(statement, sa.Insert) else None
        compiled = statement.compile(dialect=dialect, column_keys=given)
        assert isinstance(compiled, SQLCompiler), "statements compile to SQL"
        self.sql = str(compiled)
        self._positional = compiled.positional
        self._names = [*(compiled.positiontup or compiled.params)]
        self._converters = {
            name: compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect)
            for name in self._names
        }
        self._fixed = {
            name: _convert(self._converters[name], value)
            for name, value in compiled.params.items()
            if name not in keys
        }

    def bind(self, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        """The parameters of every row, as the driver takes them."""
        bound = zip(*[self._column(name, rows) for name in self._names], strict=False)
        if self._positional:
            return list(bound)
        return [dict(zip(self._names, row, strict=True)) for row in bound]

    def _column(self, name: str, rows: Sequence[Mapping[str, Any]]) -> Iterable[Any]:
        if name in self._fixed:
            return repeat(self._fixed[name], len(rows))
        values = [row[name] for row in rows]
        convert = self._converters[name]
        return values if convert is None else map(convert, values)


def _convert(convert: Convert | None, value: Any) -> Any:
    return value if convert is None else convert(value)
