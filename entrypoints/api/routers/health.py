"""Whether the service lives, is ready, and how it is doing."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from entrypoints.api.deps import AppDep, get_app, require
from entrypoints.api.metrics import render_metrics
from entrypoints.api.problems import RETRY_SECONDS, busy_response, describe_outage, documented
from entrypoints.api.tokens import Principal, Scope
from penstock.app import App
from penstock.doctor import check_readiness

router = APIRouter(tags=["operation"])


@router.get("/health")
def health() -> dict[str, str]:
    """The process answers."""
    return {"status": "healthy", "service": "penstock-api"}


@router.get("/readyz", responses=documented(503))
def ready(request: Request, app: Annotated[App, Depends(get_app)]) -> Response:
    """Database, migrations, Redis and raw store can be used."""
    checks = check_readiness(app)
    missing = []
    for name, check in checks.items():
        if not check["ok"]:
            check["detail"] = describe_outage(request, check["detail"])
            missing.append(f"{name}: {check['detail']}")
    if missing:
        return busy_response(503, "; ".join(missing), RETRY_SECONDS, checks=checks)
    return JSONResponse({"status": "ready", "checks": checks})


@router.get(
    "/metrics", response_class=PlainTextResponse, responses=documented(401, 403, 422, 429, 503)
)
def metrics(
    app: AppDep, principal: Annotated[Principal, Depends(require(Scope.ADMIN, Scope.METRICS))]
) -> PlainTextResponse:
    """Figures in the form that Prometheus reads: of the token's tenant, and with the scope
    admin:metrics of all."""
    every = Scope.METRICS in principal.scopes
    content, media_type = render_metrics(app, None if every else principal.tenant_id)
    return PlainTextResponse(content, media_type=media_type)
