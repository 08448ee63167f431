"""Nodes: made, shown, refreshed, deleted."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from entrypoints.api.deps import (
    AdminTenant,
    AppDep,
    GatheringDep,
    ReadTenant,
    SettledDep,
    Writer,
    WriteTenant,
    get_principal,
    require,
    tenant_of,
)
from entrypoints.api.hidden_paths import node_without_paths
from entrypoints.api.models import BatchAccepted, BatchIn, BatchResult, NodeAccepted, NodeIn
from entrypoints.api.problems import Problem, documented, list_faults
from entrypoints.api.quick import Settled
from entrypoints.api.tokens import Principal, Scope
from penstock.app import App
from penstock.errors import PenstockError, UsageError
from penstock.intake.intake import GroupCommit, embed_accepted
from penstock.intake.nodes import Accepted, NewNode
from penstock.llm.profiles import profile_named
from penstock.operations.nodes import delete_node as delete
from penstock.operations.nodes import refresh_node as refresh
from penstock.search.nodes import show_node as show

router = APIRouter(tags=["nodes"])
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="The same request under the same key is done once and answered alike",
    ),
]


_require_writer = require(Scope.WRITE)


async def create_node_quickly(request: Request, sent: bytes) -> Response | None:
    """The same as `create_node` for a valid body without an idempotency key."""
    headers, state = request.headers, request.app.state
    if headers.get("content-type") != "application/json" or "idempotency-key" in headers:
        return None
    if not state.penstock.settings.embedding.asynchronous:
        return None
    try:
        body = NodeIn.model_validate(json.loads(sent))
    except (ValueError, RecursionError):
        return None
    caller = await get_principal(request, headers.get("authorization"))
    principal = await _require_writer(caller)
    accepted = await _submit(state.gathering, state.settled, principal, body, None)
    content = json.dumps(accepted.as_json(), separators=(",", ":"))
    return Response(content, media_type="application/json")


async def _submit(
    gathering: GroupCommit, settled: Settled, principal: Principal, body: NodeIn, key: str | None
) -> Accepted:
    tenant_id = tenant_of(principal, body.tenant_id)
    return await settled.wait(gathering.submit(tenant_id, body.as_new_node(), key))


@router.post("/nodes", responses=documented(413))
async def create_node(
    app: AppDep,
    gathering: GatheringDep,
    settled: SettledDep,
    principal: Writer,
    body: NodeIn,
    key: Key = None,
) -> NodeAccepted:
    """Make a node; embedding and extraction follow as jobs."""
    accepted = await _submit(gathering, settled, principal, body, key)
    if not app.settings.embedding.asynchronous:
        (accepted,) = await run_in_threadpool(_embed, app, [accepted])
    return NodeAccepted(**accepted.as_json())


@router.post("/nodes/batch", responses=documented(413))
def create_nodes(app: AppDep, principal: Writer, body: BatchIn, key: Key = None) -> BatchAccepted:
    """Make many nodes in one transaction."""
    most = app.settings.node_batch_max
    if len(body.nodes) > most:
        raise UsageError(
            f"a batch holds at most {most} nodes (NODE_BATCH_MAX), not {len(body.nodes)}"
        )
    tenant_of(principal, body.tenant_id)
    read = [_read(principal, body, raw) for raw in body.nodes]
    wrong = {n: one for n, one in enumerate(read) if isinstance(one, str)}
    if wrong and not body.continue_on_error:
        number, what = next(iter(wrong.items()))
        raise Problem(422, f"nodes.{number}: {what}", errors=_listed(wrong))
    good = {n: one for n, one in enumerate(read) if not isinstance(one, str)}
    accepted = _accept_by_tenant(app, good, key)
    results = [
        BatchResult(index=n, **accepted[n].as_json())
        if n in accepted
        else BatchResult(index=n, error=wrong[n])
        for n in range(len(read))
    ]
    return BatchAccepted(created=len(accepted), failed=len(wrong), results=results)


@router.get("/nodes/{node_id}", responses=documented(404))
def show_node(app: AppDep, tenant_id: ReadTenant, node_id: str) -> dict[str, Any]:
    """A node with its text, fields and everything known about its processing."""
    with app.database.read() as tx:
        found = show(tx, tenant_id, node_id)
    return node_without_paths(app.settings, found)


@router.post("/nodes/{node_id}/refresh", responses=documented(404))
def refresh_node(app: AppDep, tenant_id: AdminTenant, node_id: str) -> dict[str, Any]:
    """Do a node again although nothing has changed; once, however often it is asked for."""
    with app.database.write() as tx:
        return refresh(tx, app.queue, tenant_id, node_id)


@router.delete("/nodes/{node_id}", status_code=204, responses=documented(404))
def delete_node(app: AppDep, tenant_id: WriteTenant, node_id: str) -> Response:
    """Delete a node: its row, text, vectors, jobs and raw bytes."""
    delete(app.database, app.queue, app.raw, tenant_id, node_id)
    return Response(status_code=204)


def _read(principal: Principal, body: BatchIn, raw: dict[str, Any]) -> tuple[str, NewNode] | str:
    """A node of a batch with its tenant, or what is wrong with it."""
    try:
        node = NodeIn.model_validate(raw)
        if node.profile is not None:
            profile_named(node.profile)
        return tenant_of(principal, node.tenant_id or body.tenant_id), node.as_new_node()
    except ValidationError as error:
        # As plain values: pydantic's own type for them is closed.
        (first, *_) = list_faults([dict(one) for one in error.errors()])
        return f"{first['where']}: {first['what']}"
    except PenstockError as error:
        return str(error)
    except Problem as refusal:
        if not body.continue_on_error:
            raise
        return str(refusal.detail)


def _accept_by_tenant(
    app: App, good: dict[int, tuple[str, NewNode]], key: str | None
) -> dict[int, Accepted]:
    tenants = list(dict.fromkeys(tenant_id for tenant_id, _ in good.values()))
    if len(tenants) > 1:
        raise UsageError("a batch is of one tenant; send one for each")
    if not good:
        return {}
    accepted = _accept(app, tenants[0], [node for _, node in good.values()], key)
    return dict(zip(good, accepted, strict=True))


def _accept(app: App, tenant_id: str, new: list[NewNode], key: str | None) -> list[Accepted]:
    accepted = app.intake.accept(tenant_id, new, key=key)
    if app.settings.embedding.asynchronous:
        return accepted
    return _embed(app, accepted)


def _embed(app: App, accepted: list[Accepted]) -> list[Accepted]:
    return embed_accepted(app.database, app.queue, app.inline_processor.process, accepted)


def _listed(wrong: dict[int, str]) -> list[dict[str, Any]]:
    return [{"where": f"nodes.{number}", "what": what} for number, what in wrong.items()]
