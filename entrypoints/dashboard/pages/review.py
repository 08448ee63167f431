"""What needs review, most valuable first."""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from entrypoints.api.deps import AppDep
from entrypoints.dashboard.rendering import show
from entrypoints.dashboard.viewer import Reviewer
from penstock.llm.profiles import profile_names
from penstock.search.nodes import ReviewFilter, list_for_review
from penstock.sources.catalogue import list_sources
from penstock.store.columns import storable

router = APIRouter()
LIMIT = 50
Value = Annotated[str, Query(max_length=2000)]


@router.get("/review")
def show_review(
    request: Request,
    app: AppDep,
    viewer: Reviewer,
    source: Value = "",
    profile: Value = "",
    reason: Value = "",
    after: Annotated[str | None, Query(max_length=30)] = None,
) -> HTMLResponse:
    asked = {"source": source, "profile": profile, "reason": reason}
    chosen = {name: storable(value) or None for name, value in asked.items()}
    with app.database.read() as tx:
        wanted = ReviewFilter(viewer.tenant_id, **chosen)
        found, more = list_for_review(tx, wanted, LIMIT, after)
        sources = [one.name for one in list_sources(tx, viewer.tenant_id)]
    return show(
        request,
        "review.html",
        viewer,
        nodes=found,
        more=urlencode({**asked, "after": more}) if more else None,
        asked=asked,
        sources=sources,
        profiles=profile_names(),
    )
