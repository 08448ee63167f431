"""What models cost day by day, and how often the first one's answer was not good enough."""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

import sqlalchemy as sa

from penstock.llm.rules.extractor import MODEL as RULES
from penstock.store.database import Tx
from penstock.store.schema import extractions, model_calls


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
    query = sa.select(
        _day(tx, c.called_at).label("day"),
        c.tenant_id,
        c.model,
        sa.func.count().label("calls"),
        sa.func.sum(c.prompt_tokens).label("prompt_tokens"),
        sa.func.sum(c.completion_tokens).label("completion_tokens"),
        sa.func.sum(c.cached_tokens).label("cached_tokens"),
        sa.func.sum(c.cost_usd).label("cost_usd"),
    ).where(*_chosen(tx, c.called_at, c.tenant_id, tenant_id, days))
    by_day = query.group_by("day", c.tenant_id, c.model)
    rows = tx.execute(by_day.order_by(sa.desc("day"), c.tenant_id, c.model))
    return [CostLine(**{**row._mapping, "day": _as_date(row.day)}) for row in rows]


def daily_fallbacks(tx: Tx, tenant_id: str | None, *, days: int) -> list[FallbackLine]:
    """Newest day first. What rules found is left out: there is nothing to fall back from."""
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
    if tx.connection.dialect.name == "postgresql":
        return sa.cast(sa.func.timezone("UTC", moment), sa.Date())
    return sa.func.date(moment)


def _as_date(day: date | str) -> date:
    """SQLite has no dates, only texts that look like them."""
    return date.fromisoformat(day) if isinstance(day, str) else day
