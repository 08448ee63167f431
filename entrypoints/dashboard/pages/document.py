"""One document: its text and fields, how they came about, and what is like it."""

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from entrypoints.api.deps import AppDep
from entrypoints.dashboard.forms import Form
from entrypoints.dashboard.rendering import go_to, show
from entrypoints.dashboard.viewer import Reader, Writer
from penstock.errors import NotFound
from penstock.operations.nodes import delete_node, node_history, refresh_node
from penstock.search.hybrid import similar_nodes
from penstock.search.nodes import ExtractionVersion, extraction_versions, show_node

router = APIRouter(prefix="/documents")
STAGE_NAMES = {"text": "Text extraction", "extract": "Extraction", "embed": "Embedding"}
NodeId = Annotated[str, Path(max_length=64)]


@router.get("/{node_id}")
def show_document(request: Request, app: AppDep, viewer: Reader, node_id: NodeId) -> HTMLResponse:
    with app.database.read() as tx:
        node = show_node(tx, viewer.tenant_id, node_id)
        versions = extraction_versions(tx, viewer.tenant_id, node["id"])
        jobs = node_history(tx, viewer.tenant_id, node["id"])
        similar = similar_nodes(tx, viewer.tenant_id, node["id"])
    return show(
        request,
        "document.html",
        viewer,
        node=node,
        versions=versions,
        reused=_is_reused(node, versions),
        jobs=jobs,
        similar=similar,
    )


@router.get("/{node_id}/raw")
def download_raw(app: AppDep, viewer: Reader, node_id: NodeId) -> Response:
    """The bytes as they came, as a file to keep: never as a page of this server."""
    with app.database.read() as tx:
        node = show_node(tx, viewer.tenant_id, node_id)
    if node["raw_key"] is None:
        raise NotFound("this document has no raw bytes: it came as text")
    content = app.raw.get(node["raw_key"])
    name = node["raw_key"].rpartition("/")[2]
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    return Response(content, media_type="application/octet-stream", headers=headers)


@router.post("/{node_id}/refresh")
def refresh(
    request: Request, app: AppDep, viewer: Writer, node_id: NodeId, form: Form
) -> RedirectResponse:
    del form
    with app.database.write() as tx:
        done = refresh_node(tx, app.queue, viewer.tenant_id, node_id)
    said = "queued" if done["enqueued"] else "already in progress"
    return go_to(request, f"/documents/{done['id']}", f"{STAGE_NAMES[done['stage']]} {said}.")


@router.post("/{node_id}/delete")
def delete(
    request: Request, app: AppDep, viewer: Writer, node_id: NodeId, form: Form
) -> RedirectResponse:
    del form
    delete_node(app.database, app.queue, app.raw, viewer.tenant_id, node_id)
    return go_to(
        request, "/search", "Document deleted, with its text, fields, vectors and raw bytes."
    )


def _is_reused(node: dict[str, Any], versions: list[ExtractionVersion]) -> bool:
    """Whether its fields come from an answer that was there already: for another document with the
    same text, or for this one in an earlier version."""
    newest = versions[0].fields if versions else None
    return bool(node["extraction_status"] == "ready" and node["fields"] != newest)
