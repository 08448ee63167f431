"""What a backfill would do, and about what it would cost, before anything happens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from penstock.backfill.backfill import first_cursor
from penstock.backfill.selection import Selection, find_candidates
from penstock.documents import Stage
from penstock.llm.chain import Price, price_table
from penstock.llm.prompts import MIN_TEXT_CHARS
from penstock.runs.up_to_date import Reason
from penstock.store.database import Tx
from penstock.store.schema import model_calls, nodes, texts

if TYPE_CHECKING:
    from penstock.app import App

CHARS_PER_TOKEN = 4
# When no model was called before: instructions and schema, and an average answer.
PROMPT_TOKENS = 500
ANSWER_TOKENS = 300
# The cost of a document is that of the newest so many calls.
PAST_CALLS = 10_000


@dataclass(frozen=True, slots=True)
class Pricing:
    """The models that would be asked."""

    models: tuple[str, ...]
    prices: Mapping[str, Price]
    max_input_chars: int


@dataclass(frozen=True, slots=True)
class Cost:
    usd: float | None
    """None: unknown."""
    basis: str
    """What it was computed from, or why it is unknown."""

    def __str__(self) -> str:
        shown = "unknown" if self.usd is None else f"${self.usd:.4f}"
        return f"{shown} ({self.basis})"


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a backfill would do. A node may have several reasons; it begins at one stage."""

    selection: Selection
    matching: int
    """Nodes that need something."""
    nodes: int
    """Those of them within the limit of this backfill."""
    reasons: dict[Reason, int]
    stages: dict[Stage, int]
    extractions: int
    cost: Cost

    def as_json(self) -> dict[str, Any]:
        return {
            "matching": self.matching,
            "nodes": self.nodes,
            "reasons": {str(reason): count for reason, count in self.reasons.items()},
            "stages": {str(stage): count for stage, count in self.stages.items()},
            "extractions": self.extractions,
            "cost_usd": None if self.cost.usd is None else round(self.cost.usd, 6),
            "cost_basis": self.cost.basis,
        }


def estimate(app: "App", selection: Selection) -> Estimate:
    """What a backfill would do and cost; nothing is changed."""
    limits = app.settings.extraction
    models = tuple(dict.fromkeys((limits.primary_model, limits.fallback_model)))
    pricing = Pricing(models, price_table(limits.prices), limits.max_input_chars)
    with app.database.read() as tx:
        return _estimate(tx, selection, pricing if app.settings.asks_models else None)


def _estimate(tx: Tx, selection: Selection, pricing: Pricing | None) -> Estimate:
    """`pricing` is None when the rules extract, at no cost."""
    all_of_them = find_candidates(selection, tx.now, after=first_cursor(tx, selection))
    chosen = all_of_them.order_by(nodes.c.seq).limit(selection.limit).subquery()
    asks, has_text = chosen.c.stage == Stage.EXTRACT, chosen.c.has_text
    stages = {
        Stage.TEXT: ~has_text,
        Stage.EXTRACT: sa.and_(has_text, asks),
        Stage.EMBED: sa.and_(has_text, chosen.c.stage == Stage.EMBED),
    }
    figures = [chosen.c[reason] for reason in selection.reasons] + [*stages.values(), asks]
    row = tx.execute(sa.select(sa.func.count(), *map(_count_where, figures))).one()
    whole, counts = row[0], iter([int(figure or 0) for figure in row[1:]])
    by_reason = {reason: next(counts) for reason in selection.reasons}
    by_stage = {stage: next(counts) for stage in stages}
    extractions = next(counts)
    matching = whole
    if selection.limit is not None and whole >= selection.limit:
        numbers = all_of_them.with_only_columns(nodes.c.seq).subquery()
        matching = int(tx.execute(sa.select(sa.func.count()).select_from(numbers)).scalar_one())
    cost = _cost(tx, selection, pricing, chosen, extractions)
    return Estimate(selection, matching, whole, by_reason, by_stage, extractions, cost)


def _count_where(condition: Any) -> sa.ColumnElement[int]:
    return sa.func.sum(sa.case((condition, 1), else_=0))


def _cost(
    tx: Tx, selection: Selection, pricing: Pricing | None, chosen: sa.Subquery, extractions: int
) -> Cost:
    if extractions == 0:
        return Cost(0.0, "nothing to ask")
    if pricing is None:
        return Cost(0.0, "offline rules")
    unpriced = [model for model in pricing.models if model not in pricing.prices]
    if unpriced:
        names = " and ".join(unpriced)
        return Cost(None, f"name the price of {names} in EXTRACTION_PRICES")
    known = _past_cost(tx, pricing, selection.tenant_id)
    if known is None and selection.tenant_id is not None:
        # No call for this tenant yet: what the models cost for others is close.
        known = _past_cost(tx, pricing, None)
    if known is not None:
        return Cost(known * extractions, "past calls")
    return _cost_by_length(tx, pricing, chosen, extractions)


def _past_cost(tx: Tx, pricing: Pricing, tenant_id: str | None) -> float | None:
    """Dollars for a recent document, at today's prices; some asked both models."""
    newest = sa.select(model_calls).order_by(model_calls.c.called_at.desc()).limit(PAST_CALLS)
    if tenant_id is not None:
        newest = newest.where(model_calls.c.tenant_id == tenant_id)
    c = newest.subquery().c
    asked = [c.model.in_(pricing.models), c.prompt_tokens > 0]
    tokens = [sa.func.sum(t) for t in (c.prompt_tokens, c.completion_tokens, c.cached_tokens)]
    rows = tx.execute(sa.select(c.model, *tokens).where(*asked).group_by(c.model)).all()
    if not rows:
        return None
    documents = sa.select(sa.func.count(sa.distinct(c.node_id))).where(*asked)
    dollars = sum(pricing.prices[row[0]].cost(*map(int, row[1:])) for row in rows)
    return dollars / int(tx.execute(documents).scalar_one())


def _cost_by_length(tx: Tx, pricing: Pricing, chosen: sa.Subquery, extractions: int) -> Cost:
    length = sa.func.length(texts.c.body)
    cut = sa.case((length > pricing.max_input_chars, pricing.max_input_chars), else_=length)
    lengths = (
        sa.select(sa.func.count(), sa.func.avg(sa.case((length >= MIN_TEXT_CHARS, cut))))
        .select_from(chosen.join(texts, texts.c.seq == chosen.c.seq))
        .where(chosen.c.stage == Stage.EXTRACT)
    )
    read, average = tx.execute(lengths).one()
    if not read:
        return Cost(None, "no text is there yet, and no model was ever asked")
    tokens = PROMPT_TOKENS + round(float(average or 0) / CHARS_PER_TOKEN)
    dollars = pricing.prices[pricing.models[0]].cost(tokens, ANSWER_TOKENS, 0)
    return Cost(dollars * extractions, "text lengths")
