"""Whether the service lives, is ready, and how it is doing."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from entrypoints.api.deps import AppDep, get_app, require
from entrypoints.api.metrics import render_metrics
from entrypoints.api.tokens import Principal, Scope
from penstock.bootstrap import App
from penstock.readiness import check_readiness

router = APIRouter(tags=["operation"])


@router.get("/health")
def health() -> dict[str, str]:
    """The process answers."""
    return {"status": "healthy", "service": "penstock-api"}


@router.get("/readyz", responses={503: {"description": "Something it needs is missing"}})
def ready(app: Annotated[App, Depends(get_app)]) -> Response:
    """Database, migrations, Redis and raw store can be used."""
    checks = check_readiness(app)
    good = all(check["ok"] for check in checks.values())
    body: dict[str, Any] = {"status": "ready" if good else "not ready", "checks": checks}
    return JSONResponse(body, 200 if good else 503)


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(
    app: AppDep, principal: Annotated[Principal, Depends(require(Scope.ADMIN))]
) -> PlainTextResponse:
    """Figures in the form that Prometheus reads."""
    del principal
    content, media_type = render_metrics(app)
    return PlainTextResponse(content, media_type=media_type)
