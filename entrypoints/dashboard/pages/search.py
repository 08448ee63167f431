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
from penstock.store.columns import storable

router = APIRouter()
LIMIT = 20
# Where profiles, of people and of postings, keep them.
SKILLS = ("primary_skills", "skills")
TITLES = ("recent_job_titles", "title")
YEARS = "years_experience_total"
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
    filters = Filters(
        viewer.tenant_id,
        storable(source) or None,
        storable(profile) or None,
        at_least={YEARS: float(years)} if years else {},
        holding=[
            (names, storable(text)) for names, text in ((SKILLS, skill), (TITLES, title)) if text
        ],
    )
    hits: list[Hit] | None = None
    if storable(q).strip():
        hits = app.searcher.search(storable(q), filters, mode, LIMIT)
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
