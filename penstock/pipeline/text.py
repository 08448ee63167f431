"""Stage `text`: raw bytes become readable text."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import sqlalchemy as sa

from penstock.crawl.files import file_version, path_of_uri
from penstock.documents import ExtractedText, Passage, RawReference, Stage
from penstock.failpoints import hit
from penstock.pipeline.keys import text_key
from penstock.pipeline.stage import (
    MARKS,
    Completion,
    StageContext,
    compute,
    split_faults,
    update_nodes,
)
from penstock.queue.items import Claim, Outcome, WorkItem
from penstock.search.passages import store_passages
from penstock.store.bulk import BulkStatement
from penstock.store.database import Tx
from penstock.store.schema import nodes, texts
from penstock.text.passages import cut_passages

# Bytes held in memory at once by one thread; a batch of large files is parsed in several slices.
SLICE_BYTES = 64 * 1024 * 1024


def process_text(context: StageContext, claim: Claim, stages: Collection[Stage]) -> list[WorkItem]:
    """Parse these documents; the leased items of their next stage, if it is among `stages`."""
    following: list[WorkItem] = []
    for items in _slices(claim.items):
        begun = context.begin(claim, items)
        hit("text.begun")
        ours, missing = context.payloads.fetch(begun)
        references = [_reference(item) for item in ours]
        keys = [_key(context, item, one) for item, one in zip(ours, references, strict=True)]
        results = compute(context.steps.parse, keys, references)
        hit("text.computed")
        good, bad = split_faults(ours, results)
        cut = {item.id: _cut(context, text) for item, text in good}
        completed = [Completion(item, Outcome.DONE, _message(text), text) for item, text in good]
        write = partial(_write_texts, context, cut)
        following += context.commit(claim, completed, [*bad, *missing], write, stages)
    return following


def _message(found: ExtractedText) -> str:
    return f"text read: {len(found.text)} characters of {found.media_type}"


def _cut(context: StageContext, found: ExtractedText) -> list[Passage]:
    return cut_passages(found.text, context.passage_chars, found.metadata)


def _write_texts(
    context: StageContext,
    cut: Mapping[int, Sequence[Passage]],
    tx: Tx,
    done: Sequence[Completion],
) -> None:
    found = [(one.item, one.result) for one in done if isinstance(one.result, ExtractedText)]
    is_cut = {"passage_chars": context.passage_chars}
    update_nodes(tx, [_node_row(tx, item, text) | is_cut for item, text in found])
    node_ids = [item.node_id for item, _ in found]
    # A text that could not be read before is there now; its fields are yet to come.
    failed = sa.and_(nodes.c.id.in_(node_ids), nodes.c.extraction_status == "failed")
    good = {"extraction_status": None, "extraction_error": None}
    tx.execute(sa.update(nodes).where(failed).values(good))
    query = sa.select(nodes.c.id, nodes.c.seq).where(nodes.c.id.in_(node_ids))
    numbers = {row.id: row.seq for row in tx.execute(query)}
    rows = [
        {"seq": numbers[item.node_id], "title": text.title or "", "body": text.text}
        for item, text in found
    ]
    _TEXT_UPSERT.execute(tx, rows)
    store_passages(tx, {numbers[item.node_id]: cut[item.id] for item, _ in found})


def _build_text_upsert(tx: Tx) -> sa.Insert:
    insert = tx.insert(texts)
    return insert.on_conflict_do_update(
        index_elements=["seq"],
        set_={"title": insert.excluded.title, "body": insert.excluded.body},
    )


_TEXT_UPSERT = BulkStatement(_build_text_upsert)


def _node_row(tx: Tx, item: WorkItem, text: ExtractedText) -> dict[str, Any]:
    name = item.document.rstrip("/").rpartition("/")[2] or item.document
    return {
        "id": item.node_id,
        "title": text.title or name,
        "media_type": text.media_type,
        "metadata": dict(text.metadata),
        "raw_key": item.payload.raw_key,
        # The old marks belong to the old text; the new ones are committed with success.
        **dict.fromkeys(MARKS),
        "updated_at": tx.now,
    }


def _key(context: StageContext, item: WorkItem, reference: RawReference) -> str:
    hints = (reference.name, reference.media_type, reference.source)
    content = item.payload.content_hash or _file_mark(reference)
    return text_key(item.tenant_id, content, *hints, context.extractors)


def _file_mark(reference: RawReference) -> str:
    """Identifies the content of a file that is read in place."""
    if reference.path is None:
        return ""
    with suppress(OSError):
        return file_version(reference.path.stat())
    return "missing"


def _reference(item: WorkItem) -> RawReference:
    payload = item.payload
    return RawReference(
        payload.raw_key,
        item.document,
        payload.size or 0,
        payload.media_type,
        payload.source,
        path_of_uri(payload.file) if payload.file else None,
    )


def _slices(items: Sequence[WorkItem]) -> Iterator[list[WorkItem]]:
    current: list[WorkItem] = []
    size = 0
    for item in items:
        item_size = item.payload.size or 0
        if current and size + item_size > SLICE_BYTES:
            yield current
            current, size = [], 0
        current.append(item)
        size += item_size
    if current:
        yield current
