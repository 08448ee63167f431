"""What must do a piece of work: its extractor, its embedder, and the blocks that say so.

A run and a backfill name their configuration, and so does each of their work items. A worker claims
only what its own configuration serves: a document that was to be read by a model is never read by
the rules because another worker happened to come by. Work that names none is for everybody.
"""

import hashlib
import json
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.queue.queue import not_of_runs
from penstock.store.database import Database, Tx
from penstock.store.schema import ACTIVE_ITEM, WAITING_ITEM, configurations, work_items

# How often the configurations that work may name are read again.
READ_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Configuration:
    """Identities of the parts that make a record."""

    extractor: str
    asks_models: bool
    embedder: str
    blocks: tuple[str, ...] = ()
    """Saved blocks, as `type/name`; empty: settings of the environment."""

    @property
    def key(self) -> str:
        parts = [self.extractor, self.asks_models, self.embedder, self.blocks]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def serves(self, wanted: "Configuration") -> bool:
        """Whether work that names that configuration may be done by this one.

        Models may take over from others if both are from the same blocks, or both from the
        environment: somebody has changed the setting. The rules never take over from models.
        """
        if self.embedder != wanted.embedder:
            return False
        changed = self.blocks == wanted.blocks and self.asks_models and wanted.asks_models
        return self.extractor == wanted.extractor or changed

    def __str__(self) -> str:
        named = f" of {', '.join(self.blocks)}" if self.blocks else ""
        return f"{self.extractor}{named}, vectors of {self.embedder}"


def record_configuration(tx: Tx, configuration: Configuration) -> str:
    """Make it known to workers; its key."""
    row = {
        "key": configuration.key,
        "extractor": configuration.extractor,
        "asks_models": configuration.asks_models,
        "embedder": configuration.embedder,
        "blocks": list(configuration.blocks),
        "created_at": tx.now,
    }
    tx.execute(tx.insert(configurations).on_conflict_do_nothing(), row)
    return configuration.key


def read_configuration(tx: Tx, key: str | None) -> Configuration | None:
    query = sa.select(configurations).where(configurations.c.key == key)
    row = tx.execute(query).first()
    return None if row is None else _configuration(row)


@dataclass(frozen=True, slots=True)
class UnservedWork:
    """Unfinished work that names a configuration which another one does not serve."""

    configuration: Configuration
    waits: bool
    """Whether some of it waits; else other workers are at all of it."""


def list_unserved(
    tx: Tx, own: Configuration, stages: Collection[Stage], *, not_runs: Collection[int] = ()
) -> list[UnservedWork]:
    """Unfinished work of these stages, and not of these runs, that `own` does not serve, by the
    configurations that it names."""
    among = (work_items.c.stage.in_(stages), not_of_runs(not_runs))
    return [
        UnservedWork(wanted, _has_work(tx, wanted.key, WAITING_ITEM, *among))
        for wanted in _list_all(tx)
        if not own.serves(wanted) and _has_work(tx, wanted.key, ACTIVE_ITEM, *among)
    ]


def served_by(keys: Collection[str]) -> sa.ColumnElement[bool]:
    """Items that name no configuration, or one of these."""
    requires = work_items.c.requires
    return sa.or_(requires.is_(None), requires.in_(keys))


@dataclass(slots=True)
class ServedKeys:
    """Keys of the configurations that one configuration serves; safe from several threads."""

    database: Database
    own: Configuration
    _keys: Sequence[str] = ()
    _read_at: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self) -> Sequence[str]:
        with self._lock:
            if time.monotonic() - self._read_at >= READ_SECONDS:
                with self.database.read() as tx:
                    known = _list_all(tx)
                self._keys = [wanted.key for wanted in known if self.own.serves(wanted)]
                self._read_at = time.monotonic()
            return self._keys


def _list_all(tx: Tx) -> list[Configuration]:
    return [_configuration(row) for row in tx.execute(sa.select(configurations))]


def _has_work(tx: Tx, key: str, *which: sa.ColumnElement[bool] | sa.TextClause) -> bool:
    left = sa.select(sa.literal(1)).where(work_items.c.requires == key, *which)
    return tx.execute(left.limit(1)).first() is not None


def _configuration(row: sa.Row[Any]) -> Configuration:
    return Configuration(row.extractor, row.asks_models, row.embedder, tuple(row.blocks))
