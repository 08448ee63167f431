"""Model calls and what they cost, by run, tenant and day."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, fields
from datetime import date, datetime, time, timedelta
from itertools import groupby
from typing import Any, TypeVar

import sqlalchemy as sa

from penstock.rules.extractor import MODEL as RULES
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
    """All calls by model, and the rejected answers by reason."""

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
    """What each of these runs has spent."""
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


@dataclass(frozen=True, slots=True)
class CostLine:
    """One model's calls for one tenant on one day (UTC)."""

    day: date
    tenant_id: str
    model: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cost_usd: float


@dataclass(frozen=True, slots=True)
class FallbackLine:
    """Answers of models that were kept on one day (UTC), and those that took a fallback."""

    day: date
    extractions: int
    fallbacks: int

    @property
    def rate(self) -> float:
        return self.fallbacks / self.extractions if self.extractions else 0.0


def daily_costs(tx: Tx, tenant_id: str | None, *, days: int) -> list[CostLine]:
    """Newest day first, of one tenant or of all; `days` includes today."""
    c = model_calls.c
    names = ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")
    sums = [sa.func.sum(c[name]).label(name) for name in names]
    day = _day(tx, c.called_at).label("day")
    query = sa.select(day, c.tenant_id, c.model, sa.func.count().label("calls"), *sums)
    query = query.where(*_chosen(tx, c.called_at, c.tenant_id, tenant_id, days))
    by_day = query.group_by("day", c.tenant_id, c.model)
    rows = tx.execute(by_day.order_by(sa.desc("day"), c.tenant_id, c.model))
    return [CostLine(**{**row._mapping, "day": _as_date(row.day)}) for row in rows]


def daily_fallbacks(tx: Tx, tenant_id: str | None, *, days: int) -> list[FallbackLine]:
    """Newest day first, without what rules extracted: they have no fallback."""
    c = extractions.c
    day = _day(tx, c.extracted_at).label("day")
    query = sa.select(day, sa.func.count(), sa.func.count(c.fallback_reason))
    query = query.where(*_chosen(tx, c.extracted_at, c.tenant_id, tenant_id, days))
    rows = tx.execute(query.where(c.model != RULES).group_by("day").order_by(sa.desc("day")))
    return [FallbackLine(_as_date(row[0]), row[1], row[2]) for row in rows]


def _chosen(
    tx: Tx,
    happened_at: sa.ColumnElement[datetime],
    whose: sa.ColumnElement[str],
    tenant_id: str | None,
    days: int,
) -> list[sa.ColumnElement[bool]]:
    today = datetime.combine(tx.now.date(), time(), tx.now.tzinfo)
    found = [happened_at >= today - timedelta(days=days - 1)]
    return found if tenant_id is None else [whose == tenant_id, *found]


def _day(tx: Tx, moment: sa.ColumnElement[datetime]) -> sa.ColumnElement[Any]:
    if tx.is_postgres:
        return sa.cast(sa.func.timezone("UTC", moment), sa.Date())
    return sa.func.date(moment)


def _as_date(day: date | str) -> date:
    """SQLite has no dates, only texts that look like them."""
    return date.fromisoformat(day) if isinstance(day, str) else day
