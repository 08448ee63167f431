"""One document: its text and fields, how they came about, and what is like it."""

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from entrypoints.api.deps import AppDep
from entrypoints.dashboard.forms import Form, text_of
from entrypoints.dashboard.rendering import go_to, show
from entrypoints.dashboard.viewer import Reader, Reviewer, Viewer, Writer
from penstock.errors import NotFound
from penstock.llm.profiles import profile_named, profile_names
from penstock.operations.nodes import delete_node, node_history, refresh_node
from penstock.review.values import is_list, parse_value, write_value
from penstock.search.hybrid import similar_nodes
from penstock.search.nodes import ExtractionVersion, extraction_versions, show_node

router = APIRouter(prefix="/documents")
STAGE_NAMES = {"text": "Text extraction", "extract": "Extraction", "embed": "Embedding"}
# Of a field that is edited.
_ROW_CHARS, _MOST_ROWS = 60, 12
NodeId = Annotated[str, Path(max_length=64)]


@router.get("/{node_id}")
def show_document(request: Request, app: AppDep, viewer: Reader, node_id: NodeId) -> HTMLResponse:
    with app.database.read() as tx:
        node = show_node(tx, viewer.tenant_id, node_id)
        versions = extraction_versions(tx, viewer.tenant_id, node["id"])
        jobs = node_history(tx, viewer.tenant_id, node["id"])
        similar = similar_nodes(tx, viewer.tenant_id, node["id"])
    editable = _editable(viewer, node)
    return show(
        request,
        "document.html",
        viewer,
        node=node,
        editable=editable,
        fields=dict.fromkeys(editable) | node["fields"],
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


@router.post("/{node_id}/fields")
def correct(
    request: Request, app: AppDep, viewer: Reviewer, node_id: NodeId, form: Form
) -> RedirectResponse:
    """One field, as it was typed."""
    name, typed = text_of(form, "field") or "", text_of(form, "value") or ""
    with app.database.read() as tx:
        node = show_node(tx, viewer.tenant_id, node_id)
    app.decider.correct(
        viewer.tenant_id,
        node["id"],
        {name: _parse(node, name, typed.replace("\r\n", "\n"))},
        author=viewer.principal.author,
        reason=text_of(form, "reason"),
    )
    return go_to(request, f"/documents/{node['id']}", f"{name} corrected.")


@router.post("/{node_id}/accept")
def accept(
    request: Request, app: AppDep, viewer: Reviewer, node_id: NodeId, form: Form
) -> RedirectResponse:
    del form
    app.decider.accept(viewer.tenant_id, node_id, author=viewer.principal.author)
    return go_to(request, f"/documents/{node_id}", "Accepted: all fields stay as they are.")


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
    if node["extraction_status"] != "ready" or not versions:
        return bool(node["extraction_status"] == "ready")
    corrected = {one["field"] for one in node["corrections"] if one["holds"]}
    shown, newest = (
        {name: value for name, value in fields.items() if name not in corrected}
        for fields in (node["fields"], versions[0].fields)
    )
    return shown != newest


def _editable(viewer: Viewer, node: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The fields that this viewer may correct, as they are typed."""
    if not viewer.may_review or node["profile"] not in profile_names():
        return {}
    profile = profile_named(node["profile"])
    texts = {name: write_value(node["fields"].get(name)) for name in profile.field_names}
    return {
        name: {
            "text": text,
            "rows": min(text.count("\n") + 1 + len(text) // _ROW_CHARS, _MOST_ROWS),
            "is_list": is_list(profile, name),
        }
        for name, text in texts.items()
    }


def _parse(node: dict[str, Any], name: str, typed: str) -> Any:
    known = node["profile"] in profile_names()
    return parse_value(profile_named(node["profile"]), name, typed) if known else typed
