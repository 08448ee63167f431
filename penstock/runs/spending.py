"""Calls to models and what they cost: of a run, or of a tenant."""

from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from penstock.store.database import Tx
from penstock.store.schema import extractions, model_calls

ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True)
class ModelSpending:
    """One model's share."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    seconds: float
    cost_usd: float


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


def run_spending(tx: Tx, run_id: int) -> Spending:
    return _spending(tx, model_calls.c.run_id == run_id, extractions.c.run_id == run_id)


def tenant_spending(tx: Tx, tenant_id: str) -> Spending:
    return _spending(tx, model_calls.c.tenant_id == tenant_id, extractions.c.tenant_id == tenant_id)


def _spending(tx: Tx, calls: sa.ColumnElement[bool], answers: sa.ColumnElement[bool]) -> Spending:
    fell_back = extractions.c.fallback_reason.is_not(None)
    fallbacks = sa.select(sa.func.count()).where(answers, fell_back)
    return Spending(
        models=_by_model(tx, calls),
        rejections=_by_reason(tx, calls),
        fallbacks=tx.execute(fallbacks).scalar_one(),
    )


def _by_model(tx: Tx, calls: sa.ColumnElement[bool]) -> dict[str, ModelSpending]:
    c = model_calls.c
    sums = [
        sa.func.sum(column)
        for column in (c.prompt_tokens, c.completion_tokens, c.cached_tokens, c.seconds, c.cost_usd)
    ]
    query = sa.select(c.model, sa.func.count(), *sums).where(calls).group_by(c.model)
    return {
        row[0]: ModelSpending(row[1], int(row[2]), int(row[3]), int(row[4]), row[5], float(row[6]))
        for row in tx.execute(query.order_by(c.model))
    }


def _by_reason(tx: Tx, calls: sa.ColumnElement[bool]) -> dict[str, int]:
    c = model_calls.c
    query = sa.select(c.outcome, sa.func.count()).where(calls, c.outcome != ACCEPTED)
    return {row[0]: row[1] for row in tx.execute(query.group_by(c.outcome).order_by(c.outcome))}
