"""Column types that mean the same on SQLite and Postgres."""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect

Json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# As text on SQLite, which has no type for it: converting would cost more than the bytes.
NodeId = sa.Uuid(as_uuid=False).with_variant(sa.String(36), "sqlite")


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
