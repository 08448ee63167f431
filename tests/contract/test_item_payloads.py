"""Payloads as they are stored: rows of earlier versions are read, and written back the same."""

import json
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.documents import Stage
from penstock.queue.items import ItemPayload, StageFailure, StageOrder
from penstock.store.database import Database
from penstock.store.schema import work_items
from tests.factories import Desk, make_item

OF_A_RUN = """{"external_id": "https://jobs.example/1", "raw_key": "raw/acme/careers/1/ab.html",
 "size": 0, "media_type": "text/html", "content_hash": "ab", "simhash": -3463507437,
 "etag": "W/\\"1\\"", "last_modified": "Tue, 01 Oct 2030 10:00:00 GMT", "profile": "job_posting",
 "source": "careers"}"""
UPLOADED = """{"external_id": "cv.md", "raw_key": "raw/acme/uploads/1/cd.md", "size": 7,
 "media_type": null, "content_hash": "cd", "order": "beside"}"""
REFERENCED = """{"external_id": "s3://b/cv.pdf", "payload_ref": "s3://b/cv.pdf",
 "order": "embed_only", "refresh": true, "backfill": 12}"""
ATTACHED = """{"external_id": "a.docx", "file": "file:///home/ann/a.docx", "attachment_id": 9,
 "media_type": "application/msword", "last_stage": "text"}"""
FAILED_BEFORE = """{"external_id": "b.txt", "raw_key": "raw/acme/careers/2/ef.txt", "size": 12,
 "content_hash": "ef", "source": "careers",
 "failed": {"error_class": "timeout", "message": "it took too long"}}"""

PAYLOADS = {
    OF_A_RUN: ItemPayload(
        external_id="https://jobs.example/1",
        raw_key="raw/acme/careers/1/ab.html",
        size=0,
        media_type="text/html",
        content_hash="ab",
        simhash=-3463507437,
        etag='W/"1"',
        last_modified="Tue, 01 Oct 2030 10:00:00 GMT",
        profile="job_posting",
        source="careers",
    ),
    UPLOADED: ItemPayload(
        external_id="cv.md",
        raw_key="raw/acme/uploads/1/cd.md",
        size=7,
        content_hash="cd",
        order=StageOrder.PARALLEL,
    ),
    REFERENCED: ItemPayload(
        external_id="s3://b/cv.pdf",
        payload_ref="s3://b/cv.pdf",
        order=StageOrder.EMBED_ONLY,
        refresh=True,
        backfill=12,
    ),
    ATTACHED: ItemPayload(
        external_id="a.docx",
        file="file:///home/ann/a.docx",
        attachment_id=9,
        media_type="application/msword",
        last_stage=Stage.TEXT,
    ),
    FAILED_BEFORE: ItemPayload(
        external_id="b.txt",
        raw_key="raw/acme/careers/2/ef.txt",
        size=12,
        content_hash="ef",
        source="careers",
        failed=StageFailure("timeout", "it took too long"),
    ),
    '{"external_id": "c"}': ItemPayload("c"),
    "{}": ItemPayload(),
}


def without_nulls(stored: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(stored).items() if value is not None}


def store(desk: Desk, stored: str) -> int:
    """An item whose payload is exactly this JSON."""
    [item_id] = desk.enqueue(make_item())
    with desk.database.write() as tx:
        written = sa.update(work_items).where(work_items.c.id == item_id)
        tx.execute(written.values(payload=json.loads(stored)))
    return item_id


@pytest.mark.both_databases
@pytest.mark.parametrize("stored", PAYLOADS)
def test_a_row_of_an_earlier_version_is_claimed_and_carried_on(
    stored: str, database: Database
) -> None:
    desk = Desk(database)
    store(desk, stored)
    claim = desk.claim()
    [item] = claim.items
    assert item.payload == PAYLOADS[stored]
    desk.complete(claim)
    with database.write() as tx:
        [following] = desk.queue.open_next(tx, claim, claim.items, Stage.EXTRACT, leased=True).items
    assert desk.row(following.id).payload == without_nulls(stored)


@pytest.mark.parametrize("stored", PAYLOADS)
def test_a_payload_is_written_as_it_was_read(stored: str) -> None:
    assert ItemPayload.from_json(json.loads(stored)).to_json() == without_nulls(stored)


def test_a_key_of_a_newer_version_is_kept() -> None:
    stored = {"external_id": "a", "language": "de"}
    payload = ItemPayload.from_json(stored)
    assert (payload.external_id, payload.unknown) == ("a", {"language": "de"})
    assert payload.to_json() == stored


def test_payloads_of_several_items_are_told_apart(database: Database) -> None:
    desk = Desk(database)
    payloads = [ItemPayload("a", size=1), ItemPayload("b\x00", order=StageOrder.PARALLEL)]
    desk.enqueue(*[make_item(payload=payload) for payload in payloads])
    found = [item.payload for item in desk.claim().items]
    assert found == [payloads[0], ItemPayload("b\ufffd", order=StageOrder.PARALLEL)]


@pytest.mark.parametrize(
    "stored",
    [{"order": "by the moon"}, {"last_stage": "dream"}, {"failed": {"message": "no class"}}],
)
def test_a_value_of_a_newer_version_is_kept_and_stops_no_claim(stored: dict[str, Any]) -> None:
    payload = ItemPayload.from_json({"external_id": "a.txt", **stored})
    assert payload.external_id == "a.txt"
    assert payload.to_json() == {"external_id": "a.txt", **stored}
