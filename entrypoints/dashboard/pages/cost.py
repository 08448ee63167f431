"""What models cost: tokens and money by day, model and tenant, and how often they fell back."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from entrypoints.api.deps import AppDep
from entrypoints.dashboard.charts import HEIGHT, draw_days, draw_rates
from entrypoints.dashboard.rendering import show
from entrypoints.dashboard.viewer import Reader
from penstock.runs.costs import daily_costs, daily_fallbacks

router = APIRouter()
# Above this share of fallbacks, the runbook says to check the primary model.
FALLBACK_LINE = 0.30


@router.get("/cost")
def show_cost(
    request: Request, app: AppDep, viewer: Reader, days: Annotated[int, Query(ge=1, le=366)] = 30
) -> HTMLResponse:
    with app.database.read() as tx:
        today = tx.now.date()
        costs = daily_costs(tx, viewer.tenant_or_all, days=days)
        fallbacks = daily_fallbacks(tx, viewer.tenant_or_all, days=days)
    answers = sum(line.extractions for line in fallbacks)
    fell_back = sum(line.fallbacks for line in fallbacks)
    return show(
        request,
        "cost.html",
        viewer,
        days=days,
        choices=(7, 30, 90, 366),
        costs=costs,
        money=draw_days(costs, days, today),
        rates=draw_rates(fallbacks, days, today),
        fallbacks=fallbacks,
        total_usd=sum(line.cost_usd for line in costs),
        total_calls=sum(line.calls for line in costs),
        total_tokens=sum(line.prompt_tokens + line.completion_tokens for line in costs),
        rate=fell_back / answers if answers else 0.0,
        answers=answers,
        line=FALLBACK_LINE,
        line_y=HEIGHT * (1 - FALLBACK_LINE),
    )
