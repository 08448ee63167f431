"""The same request made twice under one key is done once and answered alike."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from penstock.errors import UsageError
from penstock.store.database import Tx
from penstock.store.schema import idempotency_keys

KEPT = timedelta(days=1)


class KeyReused(UsageError):
    """The key stands for another request."""


def earlier_answer(tx: Tx, tenant_id: str, key: str, request_hash: str) -> Any | None:
    """What was answered to this request before, if it was made before."""
    c = idempotency_keys.c
    known = sa.select(c.request_hash, c.answer).where(c.tenant_id == tenant_id, c.key == key)
    row = tx.execute(known).first()
    if row is None:
        return None
    if row.request_hash != request_hash:
        raise KeyReused(
            f"the Idempotency-Key {key!r} was used for another request: choose a new one"
        )
    return row.answer


def keep_answer(tx: Tx, tenant_id: str, key: str, request_hash: str, answer: Sequence[Any]) -> bool:
    """Keep the answer with what it tells of; False when somebody else has just used the key, and
    then nothing else of this transaction may stay either."""
    row = {
        "tenant_id": tenant_id,
        "key": key,
        "request_hash": request_hash,
        "answer": list(answer),
        "created_at": tx.now,
    }
    insert = tx.insert(idempotency_keys).values(row).on_conflict_do_nothing()
    # Not by the count of rows, which Postgres's driver does not tell of an insert.
    return tx.execute(insert.returning(idempotency_keys.c.key)).first() is not None


def forget_old_keys(tx: Tx) -> int:
    """Keys are good for a day; how many were older."""
    return tx.execute(sa.delete(idempotency_keys).where(old_keys(tx.now))).rowcount


def old_keys(now: datetime) -> sa.ColumnElement[bool]:
    """Which keys are forgotten."""
    return idempotency_keys.c.created_at < now - KEPT
