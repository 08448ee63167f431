"""The end of a document's way: its change marks, and its line in the run."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.intake.acceptance import ORDER
from penstock.intake.plan import Order
from penstock.pipeline.batches import update_nodes
from penstock.pipeline.telling import message_of
from penstock.runs.vocabulary import DocumentStatus
from penstock.store.database import Tx
from penstock.store.schema import nodes, run_documents
from penstock.work.items import Verdict, WorkItem

MARKS = ("content_hash", "simhash", "etag", "last_modified")
# How the payload carries an earlier stage's failure to the stage that closes the document.
FAILED = "failed"
# Whoever asked for the work may want no more than this stage and those before it.
LAST_STAGE = "last_stage"
# What the store already holds is not good enough this time.
REFRESH = "refresh"


def close_ended(tx: Tx, items: Sequence[WorkItem]) -> list[WorkItem]:
    """Close the documents whose last stage this was; the items that go on to the next one."""
    close_documents(tx, [item for item in items if _ends_here(item)])
    return [item for item in items if not _ends_here(item)]


def _ends_here(item: WorkItem) -> bool:
    return bool(item.payload.get(LAST_STAGE) == item.stage)


def close_documents(tx: Tx, items: Sequence[WorkItem]) -> None:
    """These went all the way: commit their marks, unless an earlier stage failed."""
    _commit_marks(tx, [item for item in items if FAILED not in item.payload])
    _update_run_documents(tx, [(item, item.payload.get(FAILED)) for item in items])


def bury(tx: Tx, verdicts: Sequence[Verdict]) -> None:
    """Write the end of dead items to their nodes. Their old fields and marks stay."""
    for verdict in verdicts:
        values: dict[str, Any] = {"updated_at": tx.now}
        for what in _ended_by(verdict.item):
            values |= {f"{what}_status": "failed", f"{what}_error": verdict.fault.message}
        tx.execute(sa.update(nodes).where(nodes.c.id == verdict.item.node_id).values(values))


def _ended_by(item: WorkItem) -> tuple[str, ...]:
    """What of a node comes to nothing when this item is dead. Nodes that came over HTTP say what
    was to follow their text; of those of a run, the extraction tells of it."""
    if item.stage is Stage.EMBED:
        return ("embedding",)
    if item.stage is Stage.EXTRACT or ORDER not in item.payload:
        return ("extraction",)
    if item.payload[ORDER] == Order.EMBED_ONLY:
        return ("embedding",)
    return ("extraction", "embedding")


def close_failed(tx: Tx, verdicts: Sequence[Verdict]) -> None:
    """Nothing follows these: their documents in the run are errors."""
    _update_run_documents(tx, [(verdict.item, failure_of(verdict)) for verdict in verdicts])


def failure_of(verdict: Verdict) -> dict[str, str]:
    return {"error_class": verdict.fault.kind, "message": message_of(verdict)}


def carry_failure(verdict: Verdict) -> WorkItem:
    """The item as its next stage gets it, with the failure to be told at the end."""
    item = verdict.item
    return replace(item, payload={**item.payload, FAILED: failure_of(verdict)})


def _commit_marks(tx: Tx, items: Sequence[WorkItem]) -> None:
    rows = [
        {"b_id": item.node_id} | {f"b_{mark}": item.payload.get(mark) for mark in MARKS}
        for item in items
        if "content_hash" in item.payload
    ]
    update_nodes(tx, rows)


def _update_run_documents(tx: Tx, closed: Sequence[tuple[WorkItem, dict[str, str] | None]]) -> None:
    rows = [_run_document(tx, item, failure) for item, failure in closed if item.run_id is not None]
    if not rows:
        return
    c = run_documents.c
    update = (
        sa.update(run_documents)
        .where(c.run_id == sa.bindparam("b_run"), c.external_id == sa.bindparam("b_external"))
        .where(c.status == DocumentStatus.PENDING)
        .values(
            status=sa.bindparam("b_status"),
            error_class=sa.bindparam("b_class"),
            # A note made on the way in ("duplicate of …") stays unless an error replaces it.
            reason=sa.func.coalesce(sa.bindparam("b_reason", type_=c.reason.type), c.reason),
            updated_at=sa.bindparam("b_now"),
        )
    )
    tx.execute(update, rows)


def _run_document(tx: Tx, item: WorkItem, failure: dict[str, str] | None) -> dict[str, Any]:
    failed = failure or {}
    return {
        "b_run": item.run_id,
        "b_external": item.payload["external_id"],
        "b_status": DocumentStatus.ERROR if failure else DocumentStatus.READY,
        "b_class": failed.get("error_class"),
        "b_reason": failed.get("message"),
        "b_now": tx.now,
    }
