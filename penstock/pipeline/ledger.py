"""Calls to models and their answers, written to the store the moment they are there."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa

from penstock.documents import Extraction, ExtractionRequest, ModelCall, Stage
from penstock.errors import BudgetSpent
from penstock.llm.trouble import NotWanted
from penstock.store.database import Database, Tx
from penstock.store.schema import ACTIVE_RUN, extractions, model_calls, runs

# What others do to the same run (spend on it, abort it) is looked up this often.
LOOK_SECONDS = 1.0


@dataclass(slots=True)
class _Seen:
    """What was last seen of a run."""

    dollars: float
    active: bool
    looked_at: float


class StoreLedger:
    """A ledger (see `penstock.llm.ledger`) in the store; safe from several threads."""

    def __init__(
        self, database: Database, extraction_version: str, max_cost_usd_per_run: float | None
    ) -> None:
        self._database = database
        self._version = extraction_version
        self._most = max_cost_usd_per_run
        self._lock = threading.Lock()
        self._seen: dict[int, _Seen] = {}
        self._under_way: defaultdict[int, float] = defaultdict(float)

    @contextmanager
    def spending(self, request: ExtractionRequest, about_usd: float) -> Iterator[None]:
        run_id = request.run_id
        if run_id is None:
            yield
            return
        seen = self._look(run_id)
        if not seen.active:
            raise NotWanted(f"run {run_id} has ended: no model is asked for it any more")
        with self._lock:
            under_way = self._under_way[run_id]
            if self._most is not None and seen.dollars + under_way >= self._most:
                raise _budget_spent(run_id, seen.dollars, self._most)
            self._under_way[run_id] += about_usd
        try:
            yield
        finally:
            with self._lock:
                self._under_way[run_id] -= about_usd

    def record(self, request: ExtractionRequest, call: ModelCall) -> None:
        with self._database.write() as tx:
            row = {
                "tenant_id": request.tenant_id,
                "run_id": request.run_id,
                "node_id": request.node_id,
                "called_at": tx.now,
            }
            values = {one.name: getattr(call, one.name) for one in fields(call)}
            tx.execute(sa.insert(model_calls), row | values)
        if request.run_id is not None:
            with self._lock:
                if request.run_id in self._seen:
                    self._seen[request.run_id].dollars += call.cost_usd

    def keep(self, request: ExtractionRequest, answer: Extraction) -> None:
        with self._database.write() as tx:
            insert = tx.insert(extractions).on_conflict_do_nothing()
            tx.execute(insert, answer_row(tx, request, answer, self._version))

    def _look(self, run_id: int) -> _Seen:
        with self._lock:
            known = self._seen.get(run_id)
            if known is not None and time.monotonic() - known.looked_at < LOOK_SECONDS:
                return known
        with self._database.read() as tx:
            dollars = 0.0 if self._most is None else _read_spent(tx, run_id)
            seen = _Seen(dollars, _is_active(tx, run_id), time.monotonic())
        with self._lock:
            self._seen[run_id] = seen
        return seen


def _budget_spent(run_id: int, dollars: float, most: float) -> BudgetSpent:
    return BudgetSpent(
        Stage.EXTRACT,
        f"run {run_id} has cost ${dollars:.6g}, and with the calls under way all of the "
        f"${most:g} it may: raise PENSTOCK_MAX_COST_USD_PER_RUN, then `penstock resume {run_id}` "
        "goes on where it stopped",
        run_id,
    )


def answer_row(
    tx: Tx, request: ExtractionRequest, answer: Extraction, version: str
) -> dict[str, Any]:
    """An answer as it is kept for ever."""
    return {
        "tenant_id": request.tenant_id,
        "node_id": request.node_id,
        "run_id": request.run_id,
        "cache_key": request.key,
        "profile": request.profile,
        "version": version,
        "model": answer.model,
        "confidence": answer.confidence,
        "fallback_reason": answer.fallback_reason,
        "marks": list(answer.marks),
        "fields": dict(answer.fields),
        "extracted_at": tx.now,
    }


def _is_active(tx: Tx, run_id: int) -> bool:
    return (
        tx.execute(sa.select(runs.c.id).where(runs.c.id == run_id, ACTIVE_RUN)).first() is not None
    )


def _read_spent(tx: Tx, run_id: int) -> float:
    total = sa.func.coalesce(sa.func.sum(model_calls.c.cost_usd), 0.0)
    return float(tx.execute(sa.select(total).where(model_calls.c.run_id == run_id)).scalar_one())
