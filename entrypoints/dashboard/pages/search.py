"""Search, with filters by what was extracted."""

from typing import Annotated, get_args

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from entrypoints.api.deps import AppDep
from entrypoints.dashboard.rendering import show
from entrypoints.dashboard.viewer import Reader
from penstock.llm.profiles import profile_names
from penstock.search.query import Filters, Hit, Mode
from penstock.sources.catalogue import list_sources

router = APIRouter()
LIMIT = 20
# Where profiles keep skills and titles.
PERSON_FIELDS = ("primary_skills", "recent_job_titles")
POSTING_FIELDS = ("skills", "title")
Words = Annotated[str, Query(max_length=2000)]
Value = Annotated[str, Query(max_length=200)]


@router.get("/search")
def show_search(
    request: Request,
    app: AppDep,
    viewer: Reader,
    q: Words = "",
    mode: Mode = "hybrid",
    source: Words = "",
    profile: Value = "",
    skill: Value = "",
    title: Value = "",
    years: Annotated[str, Query(max_length=10, pattern=r"^\d*(\.\d+)?$")] = "",
) -> HTMLResponse:
    names = POSTING_FIELDS if profile == "job_posting" else PERSON_FIELDS
    given = dict(zip(names, (skill, title), strict=True))
    filters = Filters(
        viewer.tenant_id,
        source or None,
        profile or None,
        {name: _stored(value) for name, value in given.items() if value},
        {"years_experience_total": float(years)} if years else {},
    )
    hits: list[Hit] | None = None
    if _stored(q).strip():
        hits = app.search(_stored(q), filters, mode, LIMIT)
    with app.database.read() as tx:
        sources = [one.name for one in list_sources(tx, viewer.tenant_id)]
    return show(
        request,
        "search.html",
        viewer,
        hits=hits,
        asked={
            "q": q,
            "mode": mode,
            "source": source,
            "profile": profile,
            "skill": skill,
            "title": title,
            "years": years,
        },
        modes=get_args(Mode),
        sources=sources,
        profiles=profile_names(),
    )


def _stored(text: str) -> str:
    """As the store would hold it: no text there has a NUL."""
    return text.replace("\x00", "\ufffd")
