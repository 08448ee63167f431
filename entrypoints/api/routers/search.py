"""Search."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query

from entrypoints.api.deps import AppDep, ReadTenant
from penstock.errors import UsageError
from penstock.search.query import Filters, parse_at_least

router = APIRouter(tags=["search"])


def _filters(
    tenant_id: ReadTenant,
    source: str | None = None,
    profile: str | None = None,
    field: Annotated[list[str], Query(description="primary_skills=Python", max_length=20)] = [],  # noqa: B006 - FastAPI copies defaults
    at_least: Annotated[list[str], Query(description="salary_min=60000", max_length=20)] = [],  # noqa: B006 - FastAPI copies defaults
    needs_review: Annotated[
        bool | None, Query(description="Only documents that need review, or none of them")
    ] = None,
) -> Filters:
    return Filters(
        tenant_id,
        _stored(source),
        _stored(profile),
        _pairs(field),
        parse_at_least(_stored(one) or "" for one in at_least),
        needs_review=needs_review,
    )


Chosen = Annotated[Filters, Depends(_filters)]
Words = Annotated[str, Query(min_length=1, max_length=2000, examples=["hydraulic modelling"])]
Mode = Literal["hybrid", "text", "vector"]
Limit = Annotated[int, Query(ge=1, le=200)]


@router.get("/search")
def search(
    app: AppDep, filters: Chosen, q: Words, mode: Mode = "hybrid", limit: Limit = 10
) -> dict[str, Any]:
    """Documents by words, by meaning, or by both, best first; hits are marked in the snippets."""
    hits = app.searcher.search(_stored(q) or "", filters, mode, limit)
    return {"query": q, "mode": mode, "hits": [hit.as_json() for hit in hits]}


@router.get("/passages")
def find_passages(
    app: AppDep, filters: Chosen, q: Words, mode: Mode = "hybrid", limit: Limit = 10
) -> dict[str, Any]:
    """The best passage of each of the best documents, and where it stands, for programs that give
    them to a model and cite them."""
    found = search(app, filters, q, mode, limit)
    return {"query": q, "mode": mode, "passages": [_citation(hit) for hit in found["hits"]]}


def _citation(hit: dict[str, Any]) -> dict[str, Any]:
    cited = {name: hit[name] for name in ("title", "url", "score")}
    return {"node_id": hit["id"], **cited, **hit["passage"]}


def _pairs(given: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for name, value in map(_pair, given):
        if pairs.setdefault(name, value) != value:
            raise UsageError(f"field={name} is asked for twice: name each field once")
    return pairs


def _pair(one: str) -> tuple[str, str]:
    name, equals, value = (_stored(one) or "").partition("=")
    if not (name and equals and value):
        raise UsageError(f"field={one}: write it as name=value")
    return name, value


def _stored(text: str | None) -> str | None:
    """As the store would hold it: no text there has a NUL."""
    return None if text is None else text.replace("\x00", "\ufffd")
