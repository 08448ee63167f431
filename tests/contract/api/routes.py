"""Every route of the application."""

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

# Open to all: they tell nothing of anybody.
OPEN = {
    "GET /openapi.json",
    "GET /docs",
    "GET /docs/oauth2-redirect",
    "GET /redoc",
    "GET /health",
    "GET /readyz",
}


def routes_of(app: FastAPI) -> set[str]:
    """As `METHOD /path/{parameter}`."""
    return {
        f"{method} {context.path}"
        for context in iter_route_contexts(app.routes)
        for method in sorted(set(context.methods or ()) - {"HEAD"})
    }
