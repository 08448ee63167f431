"""Column types that mean the same on SQLite and Postgres."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect

Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# As text on SQLite, which has no type for it: converting would cost more than the bytes.
NodeId = sa.Uuid(as_uuid=False).with_variant(sa.String(36), "sqlite")


# Postgres stores no NUL, and UTF-8 has no half of a surrogate pair; a document may have both.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class Text(sa.types.TypeDecorator[str]):
    """Text of documents: characters that a database refuses are replaced."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        del dialect
        return None if value is None else _UNSTORABLE.sub("\ufffd", value)


class Json(sa.types.TypeDecorator[Any]):
    """JSON values with texts of documents."""

    impl = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        del dialect
        return storable(value)


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

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone reached the database: {value!r}")
        utc = value.astimezone(UTC)
        return utc if dialect.name == "postgresql" else utc.replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - the signature is SQLAlchemy's
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


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
