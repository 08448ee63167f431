"""Calls to models and what they cost: of runs, or of a tenant."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from typing import Any, TypeVar

import sqlalchemy as sa

from penstock.store.database import Tx
from penstock.store.schema import extractions, model_calls

ACCEPTED = "accepted"
Key = TypeVar("Key", int, str)


@dataclass(frozen=True, slots=True)
class ModelSpending:
    """One model's share."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    seconds: float
    cost_usd: float


_SHOWN = tuple(one.name for one in fields(ModelSpending))
_SUMMED = _SHOWN[1:]


@dataclass(frozen=True, slots=True)
class Spending:
    """All calls, by model, and why answers were not taken, by reason."""

    models: dict[str, ModelSpending]
    rejections: dict[str, int]
    fallbacks: int

    @property
    def llm_calls(self) -> int:
        return sum(share.calls for share in self.models.values())

    @property
    def tokens(self) -> int:
        shares = self.models.values()
        return sum(share.prompt_tokens + share.completion_tokens for share in shares)

    @property
    def cost_usd(self) -> float:
        return sum(share.cost_usd for share in self.models.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "llm_calls": self.llm_calls,
            "tokens": self.tokens,
            "cost_usd": round(self.cost_usd, 6),
            "models": {model: asdict(share) for model, share in self.models.items()},
            "rejections": self.rejections,
        }


def run_spending(tx: Tx, run_ids: Collection[int]) -> dict[int, Spending]:
    """Every one of these runs is there."""
    return _spending(tx, "run_id", run_ids)


def tenant_spending(tx: Tx, tenant_id: str) -> Spending:
    return _spending(tx, "tenant_id", [tenant_id])[tenant_id]


def _spending(tx: Tx, column: str, whose: Collection[Key]) -> dict[Key, Spending]:
    calls, fallbacks = _calls(tx, column, whose), _fallbacks(tx, column, whose)
    return {
        one: Spending(_by_model(calls[one]), _by_reason(calls[one]), fallbacks.get(one, 0))
        for one in whose
    }


def _calls(tx: Tx, column: str, whose: Collection[Key]) -> defaultdict[Key, list[sa.Row[Any]]]:
    """Summed by model and outcome, in this order."""
    c = model_calls.c
    sums = [sa.func.sum(c[name]).label(name) for name in _SUMMED]
    each = (c[column], c.model, c.outcome)
    query = sa.select(c[column].label("whose"), c.model, c.outcome, sa.func.count().label("calls"))
    query = query.add_columns(*sums).where(tx.among(c[column], whose)).group_by(*each)
    found: defaultdict[Key, list[sa.Row[Any]]] = defaultdict(list)
    for row in tx.execute(query.order_by(c.model, c.outcome)):
        found[row.whose].append(row)
    return found


def _by_model(rows: Iterable[sa.Row[Any]]) -> dict[str, ModelSpending]:
    shares = {model: list(found) for model, found in groupby(rows, key=lambda row: row.model)}
    return {
        model: ModelSpending(*(sum(getattr(row, name) for row in found) for name in _SHOWN))
        for model, found in shares.items()
    }


def _by_reason(rows: Iterable[sa.Row[Any]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in rows:
        found[row.outcome] += row.calls
    return {reason: calls for reason, calls in sorted(found.items()) if reason != ACCEPTED}


def _fallbacks(tx: Tx, column: str, whose: Collection[Key]) -> dict[Key, int]:
    c = extractions.c
    fell_back = sa.and_(tx.among(c[column], whose), c.fallback_reason.is_not(None))
    query = sa.select(c[column], sa.func.count()).where(fell_back).group_by(c[column])
    return {row[0]: row[1] for row in tx.execute(query)}
