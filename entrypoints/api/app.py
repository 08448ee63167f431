"""The application: routers, middleware, and the parts they work with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.datastructures import Headers

from entrypoints.api.bodies import Admit, BodyGuard
from entrypoints.api.document import complete_document
from entrypoints.api.loopback import refuse_strangers
from entrypoints.api.problems import add_problem_handlers, documented
from entrypoints.api.quick import QuickPath, Settled
from entrypoints.api.ratelimit import TenantRates
from entrypoints.api.routers import admin, health, jobs, nodes, review, runs, search, upload
from entrypoints.api.tokens import TokenReader
from penstock import __version__
from penstock.app import open_app
from penstock.intake.intake import GroupCommit
from penstock.settings import Settings, load_settings

DESCRIPTION = """Nodes in, structured and searchable records out. Errors are problem documents
(RFC 9457). Tokens are JWTs with the claims `tenant` and `scopes` (kg:read, kg:write,
kg:review, admin:refresh, admin:metrics)."""
# What any route may answer: wrong use, no token, not allowed, not readable, too often, not now.
_ANYWHERE = (400, 401, 403, 422, 429, 503)


def create_app(settings: Settings | None = None) -> FastAPI:
    """The API on one set of settings."""
    chosen = settings or load_settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with open_app(chosen) as opened:
            # Built before the first request: what is wrong with it stops the start, and no two
            # requests build it at once.
            intake = opened.intake
            app.state.penstock = opened
            app.state.settled = Settled()
            with GroupCommit(intake) as app.state.gathering:
                yield

    app = FastAPI(title="Penstock", version=__version__, description=DESCRIPTION, lifespan=lifespan)
    app.state.tokens = TokenReader(chosen) if chosen.asks_for_tokens else None
    app.state.rates = TenantRates(chosen.api_requests_per_minute)
    for module in (nodes, upload, search, review, runs, admin, jobs):
        app.include_router(module.router, responses=documented(*_ANYWHERE))
    app.include_router(health.router)
    add_problem_handlers(app)
    complete_document(app)
    app.add_middleware(QuickPath, method="POST", path="/nodes", quick=nodes.create_node_quickly)
    app.add_middleware(
        BodyGuard,
        admit=_admission(app.state.tokens, chosen),
        json_bytes=chosen.api_max_json_bytes,
        upload_bytes=chosen.api_max_request_bytes,
    )
    if chosen.api_cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(chosen.api_cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
        )
    return app


def _admission(tokens: TokenReader | None, settings: Settings) -> Admit:
    """The check that `get_principal` makes as well, here before a body is read."""

    def admit(method: str, headers: Headers) -> None:
        if tokens is not None:
            tokens.read(headers.get("authorization"))
        else:
            refuse_strangers(method, headers, settings.api_cors_origins)

    return admit
