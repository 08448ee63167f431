"""Review: what needs it, most valuable first; fields corrected, records accepted."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from entrypoints.api.deps import AppDep, Reviewer, ReviewTenant
from entrypoints.api.hidden_paths import node_without_paths
from entrypoints.api.models import AcceptIn, CorrectionIn, ForReview, Name
from entrypoints.api.problems import documented
from penstock.app import App
from penstock.search.nodes import ReviewFilter, list_for_review, show_node

router = APIRouter(tags=["review"])


@router.get("/review")
def list_review(
    app: AppDep,
    tenant_id: ReviewTenant,
    source: Name | None = None,
    profile: Name | None = None,
    reason: Annotated[
        Name | None, Query(description="low_confidence, missing, missing:title, unsupported, …")
    ] = None,
    after: Annotated[str | None, Query(max_length=30, description="`next` of a page")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> ForReview:
    """Nodes that need review, with their fields and the evidence for them: first those whose least
    sure required field is least sure, and of these the newest."""
    wanted = ReviewFilter(tenant_id, source, profile, reason)
    with app.database.read() as tx:
        found, more = list_for_review(tx, wanted, limit, after)
    return ForReview(items=[node_without_paths(app.settings, one) for one in found], next=more)


@router.patch("/nodes/{node_id}/fields", responses=documented(404, 413))
def correct_node(
    app: AppDep, principal: Reviewer, tenant_id: ReviewTenant, node_id: str, body: CorrectionIn
) -> dict[str, Any]:
    """Correct fields of a node. The values stay whatever is extracted from the same text later."""
    reason = body.reason or None
    app.decider.correct(tenant_id, node_id, body.fields, author=principal.author, reason=reason)
    return _shown(app, tenant_id, node_id)


@router.post("/nodes/{node_id}/accept", responses=documented(404, 413))
def accept_node(
    app: AppDep,
    principal: Reviewer,
    tenant_id: ReviewTenant,
    node_id: str,
    body: AcceptIn | None = None,
) -> dict[str, Any]:
    """Say that a node is right as it is: it needs no review any more, and its fields stay."""
    reason = (body and body.reason) or None
    app.decider.accept(tenant_id, node_id, author=principal.author, reason=reason)
    return _shown(app, tenant_id, node_id)


def _shown(app: App, tenant_id: str, node_id: str) -> dict[str, Any]:
    with app.database.read() as tx:
        return node_without_paths(app.settings, show_node(tx, tenant_id, node_id))
