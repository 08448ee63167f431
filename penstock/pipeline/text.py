"""Stage `text`: raw bytes become readable text."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from penstock.crawl.localfile import path_of_uri
from penstock.documents import ExtractedText, Stage
from penstock.pipeline.batches import Line, compute, split_faults, update_nodes
from penstock.pipeline.closing import MARKS, bury, close_ended, close_failed
from penstock.pipeline.steps import RawReference, TextResult
from penstock.store.database import Tx
from penstock.store.schema import nodes, texts
from penstock.work.items import Claim, Outcome, WorkItem

# Bytes held in memory at once by one lane; a batch of large files is parsed in several goes.
SLICE_BYTES = 64 * 1024 * 1024


def process_text(line: Line, claim: Claim, *, go_on: bool) -> Claim:
    """Parse these documents; the claim on their next stage, or an empty one."""
    following: list[WorkItem] = []
    for items in _slices(claim.items):
        following += _process_slice(line, claim, items, go_on)
    return replace(claim, items=tuple(following))


def _process_slice(
    line: Line, claim: Claim, items: Sequence[WorkItem], go_on: bool
) -> Sequence[WorkItem]:
    ours = line.begin(claim, items)
    references = [_reference(item) for item in ours]
    keys = [_key(line, item, one) for item, one in zip(ours, references, strict=True)]
    results = compute(line.steps.parse, keys, references)
    return _commit(line, claim, ours, results, go_on)


def _commit(
    line: Line,
    claim: Claim,
    items: Sequence[WorkItem],
    results: Sequence[TextResult],
    go_on: bool,
) -> Sequence[WorkItem]:
    good, bad = split_faults(items, results)
    found = {item.id: text for item, text in good}
    with line.database.write() as tx:
        ours = line.queue.complete(tx, claim, [item for item, _ in good], Outcome.DONE)
        _write_texts(tx, ours, found)
        verdicts = line.queue.fail(tx, claim, bad)
        dead = [verdict for verdict in verdicts if verdict.dead]
        bury(tx, dead)
        close_failed(tx, dead)
        going_on = close_ended(tx, ours)
        following = line.queue.open_next(tx, claim, going_on, Stage.EXTRACT, leased=go_on)
    line.tell([(item, found[item.id]) for item in ours], verdicts)
    return following.items


def _write_texts(tx: Tx, items: Sequence[WorkItem], found: dict[int, ExtractedText]) -> None:
    if not items:
        return
    update_nodes(tx, [_node_row(tx, item, found[item.id]) for item in items])
    _forget_failure(tx, [item.node_id for item in items])
    numbers = _sequence_numbers(tx, [item.node_id for item in items])
    insert = tx.insert(texts)
    upsert = insert.on_conflict_do_update(
        index_elements=["seq"],
        set_={"title": insert.excluded.title, "body": insert.excluded.body},
    )
    tx.execute(upsert, [_text_row(numbers[item.node_id], found[item.id]) for item in items])


def _forget_failure(tx: Tx, node_ids: Sequence[str]) -> None:
    """A text that could not be had before is there now; nothing is said yet about its fields."""
    failed = sa.and_(nodes.c.id.in_(node_ids), nodes.c.extraction_status == "failed")
    good = {"extraction_status": None, "extraction_error": None}
    tx.execute(sa.update(nodes).where(failed).values(good))


def _node_row(tx: Tx, item: WorkItem, text: ExtractedText) -> dict[str, Any]:
    return {
        "b_id": item.node_id,
        "b_title": text.title or _title_from(item.payload["external_id"]),
        "b_media_type": text.media_type,
        "b_metadata": dict(text.metadata),
        "b_raw_key": item.payload.get("raw_key"),
        # The old marks belong to the old text; the new ones are committed with success.
        **dict.fromkeys((f"b_{mark}" for mark in MARKS), None),
        "b_updated_at": tx.now,
    }


def _text_row(seq: int, text: ExtractedText) -> dict[str, Any]:
    return {"seq": seq, "title": text.title or "", "body": text.text}


def _title_from(external_id: str) -> str:
    return external_id.rstrip("/").rpartition("/")[2] or external_id


def _sequence_numbers(tx: Tx, node_ids: Sequence[str]) -> dict[str, int]:
    query = sa.select(nodes.c.id, nodes.c.seq).where(nodes.c.id.in_(node_ids))
    return {row.id: row.seq for row in tx.execute(query)}


def _key(line: Line, item: WorkItem, reference: RawReference) -> str:
    # The name and the declared type settle what the bytes are when the bytes alone do not.
    hints = (reference.name, reference.media_type, reference.source)
    content = item.payload.get("content_hash") or _file_mark(reference)
    return ":".join(map(str, (item.tenant_id, content, *hints, line.extractors)))


def _file_mark(reference: RawReference) -> str:
    """What stands for the content of a file that is read where it lies."""
    if reference.path is None:
        return ""
    with suppress(OSError):
        status = reference.path.stat()
        return f"{status.st_dev}:{status.st_ino}:{status.st_mtime_ns}:{status.st_size}"
    return "missing"


def _reference(item: WorkItem) -> RawReference:
    payload = item.payload
    return RawReference(
        payload.get("raw_key"),
        payload["external_id"],
        payload.get("size", 0),
        payload.get("media_type"),
        payload.get("source"),
        path_of_uri(payload["file"]) if "file" in payload else None,
    )


def _slices(items: Sequence[WorkItem]) -> Iterator[list[WorkItem]]:
    current: list[WorkItem] = []
    size = 0
    for item in items:
        weight = item.payload.get("size", 0)
        if current and size + weight > SLICE_BYTES:
            yield current
            current, size = [], 0
        current.append(item)
        size += weight
    if current:
        yield current
