"""Stage `text`: raw bytes become readable text."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from penstock.crawl.localfile import path_of_uri
from penstock.documents import ExtractedText, Fault, Stage
from penstock.faults import reach
from penstock.intake.acceptance import ORDER
from penstock.intake.plan import Order
from penstock.pipeline.batches import Line, compute, split_faults, update_nodes
from penstock.pipeline.closing import MARKS, bury, close_ended, close_failed
from penstock.pipeline.steps import RawReference
from penstock.pipeline.telling import tell, tell_failures
from penstock.store.database import Tx
from penstock.store.schema import nodes, texts
from penstock.work.items import Claim, Outcome, WorkItem

# Bytes held in memory at once by one lane; a batch of large files is parsed in several goes.
SLICE_BYTES = 64 * 1024 * 1024


def process_text(line: Line, claim: Claim, stages: Collection[Stage]) -> Claim:
    """Parse these documents; the claim on their next stage, if it is among ours."""
    following: list[WorkItem] = []
    for items in _slices(claim.items):
        following += _process_slice(line, claim, items, stages)
    return replace(claim, items=tuple(following))


def _process_slice(
    line: Line, claim: Claim, items: Sequence[WorkItem], stages: Collection[Stage]
) -> Sequence[WorkItem]:
    begun = line.begin(claim, items)
    reach("text.begun")
    ours, missing = line.payloads.bring(begun)
    references = [_reference(item) for item in ours]
    keys = [_key(line, item, one) for item, one in zip(ours, references, strict=True)]
    results = compute(line.steps.parse, keys, references)
    reach("text.computed")
    good, bad = split_faults(ours, results)
    return _Commit(line, claim, stages).write(good, [*bad, *missing])


@dataclass(frozen=True, slots=True)
class _Commit:
    """Writes the texts of one slice, and opens what follows, in one transaction."""

    line: Line
    claim: Claim
    stages: Collection[Stage]

    def write(
        self,
        good: Sequence[tuple[WorkItem, ExtractedText]],
        bad: Sequence[tuple[WorkItem, Fault]],
    ) -> Sequence[WorkItem]:
        found = {item.id: text for item, text in good}
        queue = self.line.queue
        with self.line.database.write() as tx:
            ours = queue.complete(tx, self.claim, [item for item, _ in good], Outcome.DONE)
            _write_texts(tx, ours, found)
            verdicts = queue.fail(tx, self.claim, bad)
            dead = [verdict for verdict in verdicts if verdict.dead]
            bury(tx, dead)
            tell_failures(tx, verdicts)
            tell(tx, [(item, _story(found[item.id])) for item in ours])
            close_failed(tx, dead)
            following = self._open_next(tx, close_ended(tx, ours))
        self.line.tell([(item, found[item.id]) for item in ours], verdicts)
        return following

    def _open_next(self, tx: Tx, items: Sequence[WorkItem]) -> list[WorkItem]:
        """Each in its own order: extraction first, or the vector at once and fields beside it."""
        by_order: dict[Order, list[WorkItem]] = {order: [] for order in Order}
        for item in items:
            by_order[Order(item.payload.get(ORDER, Order.EXTRACT_FIRST))].append(item)
        opened = self._open(tx, by_order[Order.EXTRACT_FIRST], Stage.EXTRACT)
        opened += self._open(tx, by_order[Order.EMBED_ONLY], Stage.EMBED)
        opened += self._open(tx, by_order[Order.BESIDE], Stage.EMBED)
        self.line.queue.open_next(
            tx, self.claim, by_order[Order.BESIDE], Stage.EXTRACT, leased=False
        )
        return opened

    def _open(self, tx: Tx, items: Sequence[WorkItem], stage: Stage) -> list[WorkItem]:
        leased = stage in self.stages
        return [*self.line.queue.open_next(tx, self.claim, items, stage, leased=leased).items]


def _story(found: ExtractedText) -> str:
    return f"text read: {len(found.text)} characters of {found.media_type}"


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
