"""The OpenAPI document, with what holds for all routes."""

from typing import Any

from fastapi import FastAPI

from entrypoints.api.problems import ProblemDocument

_BEARER = {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}


def complete_document(app: FastAPI) -> None:
    """Add problem documents to the OpenAPI document, and tokens where they are required."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        document = described()
        components = document.setdefault("components", {})
        components.setdefault("schemas", {})["ProblemDocument"] = (
            ProblemDocument.model_json_schema()
        )
        if app.state.tokens is not None:
            components["securitySchemes"] = {"bearer": _BEARER}
            document["security"] = [{"bearer": []}]
        return document

    app.openapi = openapi  # type: ignore[method-assign]
