"""Column types that mean the same on SQLite and Postgres."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# As text on SQLite, which has no type for it: converting would cost more than the bytes.
NodeId = sa.Uuid(as_uuid=False).with_variant(sa.String(36), "sqlite")


# Postgres stores no NUL, and UTF-8 has no half of a surrogate pair; a document may have both.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


# How they look in JSON. A whole surrogate pair looks like that too, and is only looked at again.
_UNSTORABLE_JSON = ("\\u0000", "\\ud")


class Text(sa.types.TypeDecorator[str]):
    """Text of documents: characters that a database refuses are replaced."""

    impl = sa.Text
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[str | None], str | None]:
        # Instead of process_bind_param, which costs a second call for each of a million values.
        del dialect
        return _storable_text


def _storable_text(value: str | None) -> str | None:
    if value is None or (value.isascii() and "\x00" not in value):
        return value
    return _UNSTORABLE.sub("\ufffd", value)


class Json(sa.types.TypeDecorator[Any]):
    """JSON values with texts of documents."""

    impl = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any]:
        dump = self.impl_instance.bind_processor(dialect)
        assert dump is not None, "every dialect has to write JSON as something"
        if dialect.name == "postgresql":
            return lambda value: dump(storable(value))
        return partial(dump_storable, dump=dump)


def dump_storable(value: Any, dump: Callable[[Any], Any] = json.dumps) -> Any:
    """The JSON text of a value, with characters that a database refuses replaced.

    Most values have none: looking for them in the text is quicker than in the value.
    """
    text = dump(value)
    if text is None or not any(sign in text for sign in _UNSTORABLE_JSON):
        return text
    return dump(storable(value))


def storable(value: Any) -> Any:
    """The same JSON with characters that a database refuses replaced."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {storable(key): storable(one) for key, one in value.items()}
    return [storable(one) for one in value] if isinstance(value, list | tuple) else value


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """Aware UTC in Python; `timestamptz` on Postgres, sortable text on SQLite."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], Any]:
        return _DateTimeBinder(self._in_utc, self.impl_instance.bind_processor(dialect), dialect)

    def _in_utc(self, value: datetime, dialect: Dialect) -> datetime:
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone reached the database: {value!r}")
        utc = value.astimezone(UTC)
        return utc if dialect.name == "postgresql" else utc.replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - the signature is SQLAlchemy's
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class _DateTimeBinder:
    """Writes a time as the database takes it. Most rows of a statement have the same one, so the
    last is remembered."""

    def __init__(
        self,
        in_utc: Callable[[datetime, Dialect], datetime],
        write: Callable[[Any], Any] | None,
        dialect: Dialect,
    ) -> None:
        self._in_utc = in_utc
        self._write = write
        self._dialect = dialect
        self._last: tuple[datetime | None, Any] = (None, None)

    def __call__(self, value: datetime | None) -> Any:
        if value is None:
            return None
        seen, written = self._last
        if value is seen:
            return written
        utc = self._in_utc(value, self._dialect)
        written = utc if self._write is None else self._write(utc)
        self._last = (value, written)
        return written


class Vector(sa.types.TypeDecorator[bytes]):
    """Little-endian float32 bytes in Python; pgvector's `vector` or a SQLite blob below."""

    impl = sa.LargeBinary
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> sa.types.TypeEngine[Any]:
        if dialect.name != "postgresql":
            return dialect.type_descriptor(sa.LargeBinary())
        from pgvector.sqlalchemy import VECTOR

        return dialect.type_descriptor(VECTOR())

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> Any:
        if value is None or dialect.name != "postgresql":
            return value
        import numpy as np

        return np.frombuffer(value, "<f4")

    def process_result_value(self, value: Any, dialect: Dialect) -> bytes | None:
        if value is None or dialect.name != "postgresql":
            return value  # type: ignore[no-any-return]  # SQLite hands the blob back as it is
        import numpy as np

        return np.asarray(value, dtype="<f4").tobytes()
