"""What a backfill would do, and about what it would cost, before anything happens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from penstock.backfill.candidates import find_candidates
from penstock.backfill.record import first_cursor
from penstock.backfill.selection import Reason, Selection
from penstock.documents import Stage
from penstock.llm.extractor import MIN_TEXT_CHARS
from penstock.llm.prices import Price
from penstock.store.database import Tx
from penstock.store.schema import model_calls, nodes, texts

Basis = Literal["nothing to ask", "offline rules", "past calls", "text lengths", "unknown"]
CHARS_PER_TOKEN = 4
# When nothing was asked before: instructions and schema, and an answer of middling length.
PROMPT_TOKENS = 500
ANSWER_TOKENS = 300


@dataclass(frozen=True, slots=True)
class Pricing:
    """The models that would be asked."""

    models: tuple[str, ...]
    prices: Mapping[str, Price]
    max_input_chars: int

    @property
    def unpriced(self) -> list[str]:
        return [model for model in self.models if model not in self.prices]


@dataclass(frozen=True, slots=True)
class Cost:
    usd: float | None
    """None: nobody can know."""
    basis: Basis
    note: str = ""

    def __str__(self) -> str:
        shown = "unknown" if self.usd is None else f"${self.usd:.4f}"
        return f"{shown} ({self.note or self.basis})"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A node may have several reasons; it has one stage at which it begins."""

    selection: Selection
    matching: int
    """Nodes that need something."""
    nodes: int
    """Those of them that this backfill does: no more than its limit."""
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
            "cost_basis": self.cost.note or self.cost.basis,
        }


def estimate_backfill(tx: Tx, selection: Selection, pricing: Pricing | None) -> Estimate:
    """Look, and change nothing. `pricing` is None when the rules extract, which cost nothing."""
    all_of_them = find_candidates(selection, tx.now, after=first_cursor(tx, selection))
    chosen = all_of_them.order_by(nodes.c.seq).limit(selection.limit).subquery()
    starts_with_text = ~chosen.c.has_text
    stages = {
        Stage.TEXT: starts_with_text,
        **{
            s: sa.and_(chosen.c.has_text, chosen.c.stage == s) for s in (Stage.EXTRACT, Stage.EMBED)
        },
    }
    asks = chosen.c.stage == Stage.EXTRACT
    figures = [chosen.c[reason] for reason in selection.reasons] + [*stages.values(), asks]
    row = tx.execute(sa.select(sa.func.count(), *map(_count_where, figures))).one()
    whole, counts = row[0], iter([int(figure or 0) for figure in row[1:]])
    by_reason = {reason: next(counts) for reason in selection.reasons}
    by_stage = {stage: next(counts) for stage in stages}
    extractions = next(counts)
    matching = (
        whole if selection.limit is None or whole < selection.limit else _count(tx, all_of_them)
    )
    cost = _cost(tx, selection, pricing, chosen, extractions)
    return Estimate(selection, matching, whole, by_reason, by_stage, extractions, cost)


def _count(tx: Tx, found: sa.Select[Any]) -> int:
    numbers = found.with_only_columns(nodes.c.seq).subquery()
    return int(tx.execute(sa.select(sa.func.count()).select_from(numbers)).scalar_one())


def _count_where(condition: Any) -> sa.ColumnElement[int]:
    return sa.func.sum(sa.case((condition, 1), else_=0))


def _cost(
    tx: Tx, selection: Selection, pricing: Pricing | None, chosen: sa.Subquery, extractions: int
) -> Cost:
    if extractions == 0:
        return Cost(0.0, "nothing to ask")
    if pricing is None:
        return Cost(0.0, "offline rules")
    if pricing.unpriced:
        names = " and ".join(pricing.unpriced)
        return Cost(None, "unknown", f"name the price of {names} in EXTRACTION_PRICES")
    known = _past_cost(tx, pricing, selection.tenant_id)
    if known is None and selection.tenant_id is not None:
        # Never asked for this tenant: what the models cost for others is still near the truth.
        known = _past_cost(tx, pricing, None)
    if known is not None:
        return Cost(known * extractions, "past calls")
    return _cost_by_length(tx, pricing, chosen, extractions)


def _past_cost(tx: Tx, pricing: Pricing, tenant_id: str | None) -> float | None:
    """Dollars for a document so far, at today's prices: some of them asked both models."""
    c = model_calls.c
    asked = [c.model.in_(pricing.models), c.prompt_tokens > 0]
    if tenant_id is not None:
        asked.append(c.tenant_id == tenant_id)
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
        return Cost(None, "unknown", "no text is there yet, and no model was ever asked")
    tokens = PROMPT_TOKENS + round(float(average or 0) / CHARS_PER_TOKEN)
    dollars = pricing.prices[pricing.models[0]].cost(tokens, ANSWER_TOKENS, 0)
    return Cost(dollars * extractions, "text lengths")
