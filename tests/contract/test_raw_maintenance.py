"""Which raw bytes maintenance deletes, in a folder and in a bucket, and which it never does."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest
import sqlalchemy as sa

from penstock.crawl import rawstore
from penstock.crawl.rawstore import LocalRawStore, RawStore, S3RawStore, StoredObject, is_ours
from penstock.documents import Stage
from penstock.errors import DocumentFault, ErrorClass
from penstock.maintenance import raw_objects
from penstock.maintenance.raw_objects import RawObjects
from penstock.operations.jobs import replay
from penstock.queue.items import ItemPayload
from penstock.runs.run import DocumentStatus
from penstock.store.database import Database
from penstock.store.schema import nodes, work_items
from tests.contract.ingestion import Workplace, make_text
from tests.factories import TENANT, Desk, add_node, add_source, make_fault, make_item, read_node
from tests.s3 import Reply, script

SOURCE = "careers"
MINUTE = timedelta(minutes=1)
ODD_TENANT, ODD_SOURCE = "../ümlaut", "https://x.example/jobs?q=a b~"


class Place(Protocol):
    """Where a store keeps its bytes, looked at from outside."""

    raw: RawStore

    def keys(self) -> set[str]: ...

    def age(self, key: str, age: timedelta) -> None:
        """As if it had been stored so long ago."""

    def put_foreign(self, key: str) -> None:
        """Something that is not ours."""


class FolderPlace:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.raw: RawStore = LocalRawStore(root)

    def keys(self) -> set[str]:
        paths = (path for path in self.root.rglob("*") if path.is_file())
        return {path.relative_to(self.root).as_posix() for path in paths}

    def age(self, key: str, age: timedelta) -> None:
        when = (datetime.now(UTC) - age).timestamp()
        os.utime(self.root / key, (when, when))

    def put_foreign(self, key: str) -> None:
        (self.root / key).parent.mkdir(parents=True, exist_ok=True)
        (self.root / key).write_bytes(b"not ours")


class BucketPlace:
    def __init__(self, client: Any, bucket: str) -> None:
        self.client, self.bucket = client, bucket
        self.raw: RawStore = S3RawStore(client, bucket, "kept/here")

    def keys(self) -> set[str]:
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix="kept/here/")
        return {entry["Key"].removeprefix("kept/here/") for entry in found.get("Contents", ())}

    def age(self, key: str, age: timedelta) -> None:
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        stored = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[self.bucket].keys
        stored[f"kept/here/{key}"].last_modified = datetime.now(UTC).replace(tzinfo=None) - age

    def put_foreign(self, key: str) -> None:
        self.client.put_object(Bucket=self.bucket, Key=f"kept/here/{key}", Body=b"not ours")


@pytest.fixture
def folder(tmp_path: Path) -> FolderPlace:
    return FolderPlace(tmp_path / "home")


@pytest.fixture
def stored(s3: Any, bucket: str) -> BucketPlace:
    return BucketPlace(s3, bucket)


@pytest.fixture(
    params=["folder", pytest.param("stored", marks=pytest.mark.full_suite)], ids=["local", "s3"]
)
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def source_id(database: Database) -> int:
    with database.write() as tx:
        return add_source(tx, SOURCE)


def tidy(
    database: Database,
    raw: RawStore,
    *,
    expired_days: int = 90,
    old_days: int = 30,
    dry_run: bool = False,
    now: datetime | None = None,
) -> dict[str, tuple[int, int]]:
    """What was deleted, in words for the tests."""
    found = RawObjects(
        database, raw, now or datetime.now(UTC), expired_days, old_days, dry_run
    ).tidy()
    named = zip(("expired", "old", "unfinished"), found, strict=True)
    return {name: (one.count, one.bytes or 0) for name, one in named if one.count}


def put(place: Place, content: bytes = b"x", name: str = "a", *, days: float = 0) -> str:
    key = place.raw.put(TENANT, SOURCE, name, content, "txt")
    place.age(key, timedelta(days=days))
    return key


@pytest.mark.parametrize(("age", "left"), [(-MINUTE, 1), (MINUTE, 0)])
def test_bytes_that_nothing_refers_to_go_when_they_are_old_enough(
    database: Database, source_id: int, place: Place, age: timedelta, left: int
) -> None:
    del source_id
    place.age(put(place, b"four"), timedelta(days=30) + age)
    assert tidy(database, place.raw) == ({} if left else {"old": (1, 4)})
    assert len(place.keys()) == left


def test_only_the_older_version_of_a_page_goes(
    database: Database, source_id: int, place: Place
) -> None:
    old, new = put(place, b"old", days=40), put(place, b"new", days=35)
    with database.write() as tx:
        add_node(tx, source_id=source_id, raw_key=new)
    assert tidy(database, place.raw, dry_run=True) == {"old": (1, 3)}
    assert place.keys() == {old, new}
    assert tidy(database, place.raw) == {"old": (1, 3)}
    assert place.keys() == {new}
    assert tidy(database, place.raw) == {}


@pytest.mark.parametrize(("days", "left"), [(89.99, 1), (90.01, 0)])
def test_bytes_of_a_document_go_long_after_it_expired(
    database: Database, source_id: int, place: Place, days: float, left: int
) -> None:
    key = put(place, b"gone", days=200)
    with database.write() as tx:
        expired = tx.now - timedelta(days=days)
        node = add_node(tx, source_id=source_id, raw_key=key, expired_at=expired)
    assert tidy(database, place.raw, dry_run=True) == ({} if left else {"expired": (1, 4)})
    assert read_node(database, node).raw_key == key
    assert tidy(database, place.raw, old_days=0) == ({} if left else {"expired": (1, 4)})
    assert len(place.keys()) == left
    assert read_node(database, node).raw_key == (key if left else None)


def test_zero_keeps_for_ever(database: Database, source_id: int, place: Place) -> None:
    key = put(place, days=4000)
    with database.write() as tx:
        expired = tx.now - timedelta(days=3000)
        add_node(tx, source_id=source_id, raw_key=key, expired_at=expired)
    put(place, b"older version", days=4000)
    assert tidy(database, place.raw, expired_days=0, old_days=0) == {}
    assert len(place.keys()) == 2


@pytest.mark.parametrize("state", ["pending", "processing", "retry_pending", "failed"])
def test_bytes_that_a_job_may_still_need_stay(
    database: Database, source_id: int, place: Place, state: str
) -> None:
    key, twin = put(place, b"needed", days=400), put(place, b"not needed", days=400)
    desk = Desk(database)
    with database.write() as tx:
        node = add_node(
            tx, source_id=source_id, raw_key=twin, expired_at=tx.now - timedelta(days=300)
        )
    [item_id] = desk.enqueue(make_item(node, payload=ItemPayload("a", raw_key=key)))
    if state != "pending":
        claim = desk.claim()
        kind = ErrorClass.CORRUPTION if state == "failed" else ErrorClass.TIMEOUT
        if state != "processing":
            desk.fail(claim, make_fault(kind))
    assert desk.row(item_id).status == state
    gone = tidy(database, place.raw)
    # The document is expired, and its bytes go unless workers are running for it.
    assert gone == ({"expired": (1, 10)} if state == "failed" else {})
    assert place.raw.get(key) == b"needed"
    if state == "failed":
        with database.write() as tx:
            assert replay(tx, desk.queue, TENANT, Stage.TEXT, ids=None, limit=9) == 1


def test_bytes_whose_text_was_never_read_stay_while_a_job_names_them(
    database: Database, source_id: int, place: Place
) -> None:
    key = put(place, days=400)
    desk = Desk(database)
    with database.write() as tx:
        node = add_node(tx, source_id=source_id)
    desk.enqueue(make_item(node, payload=ItemPayload("a", raw_key=key)))
    desk.cancel(work_items.c.node_id == node)
    assert tidy(database, place.raw) == {}
    with database.write() as tx:
        tx.execute(sa.delete(work_items))
    assert tidy(database, place.raw) == {"old": (1, 1)}


def test_what_is_not_ours_is_never_deleted(
    database: Database, source_id: int, place: Place
) -> None:
    del source_id
    digest = "0" * 64
    foreign = {
        "notes.txt",
        f"raw/{TENANT}/{SOURCE}/a/notes.txt",
        f"raw/{TENANT}/{SOURCE}/{digest}.txt",
        f"raw/{TENANT}/{SOURCE}/a/b/{digest}.txt",
        f"raw/{TENANT}/{SOURCE}/a b/{digest}.txt",
        f"raw/{TENANT}/{SOURCE}/a/{digest[1:]}.txt",
        f"raw/{TENANT}/{SOURCE}-two/a/{digest}.txt",
        f"raw/{TENANT}/another/a/{digest}.txt",
        f"raw/another/{SOURCE}/a/{digest}.txt",
        f"raw/{TENANT}/{SOURCE}/a/.hidden.tmp",
    }
    for key in foreign:
        place.put_foreign(key)
        place.age(key, timedelta(days=4000))
    own = put(place, days=4000)
    assert own not in foreign
    assert tidy(database, place.raw) == {"old": (1, 1)}
    assert place.keys() == foreign


def test_odd_names_of_tenants_and_sources_are_found(database: Database, place: Place) -> None:
    with database.write() as tx:
        add_source(tx, ODD_SOURCE, ODD_TENANT)
    for name in ("", "..", "x" * 500, "a/b"):
        key = place.raw.put(ODD_TENANT, ODD_SOURCE, name, b"x", "~")
        assert is_ours(key)
        place.age(key, timedelta(days=31))
    uploaded = place.raw.put(ODD_TENANT, "uploads", "u/cv.pdf", b"x", "pdf")
    fetched = place.raw.put(ODD_TENANT, "nodes", "n", b"x", "pdf")
    for key in (uploaded, fetched):
        place.age(key, timedelta(days=31))
    assert tidy(database, place.raw) == {"old": (6, 6)}
    assert place.keys() == set()


def test_a_database_that_knows_no_sources_deletes_nothing(database: Database, place: Place) -> None:
    key = put(place, days=4000)
    assert tidy(database, place.raw) == {}
    assert place.keys() == {key}


def test_bytes_that_are_stored_again_are_young_again(
    database: Database, source_id: int, place: Place
) -> None:
    """A page that is as it was a month ago: its run has not committed anything yet."""
    del source_id
    put(place, b"as before", days=40)
    key = place.raw.put(TENANT, SOURCE, "a", b"as before", "txt")
    assert tidy(database, place.raw, old_days=1) == {}
    assert place.raw.get(key) == b"as before"


def test_bytes_that_are_stored_again_while_they_are_looked_at_stay(
    database: Database, source_id: int, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    del source_id
    key = put(place, b"as before", days=40)
    delete = place.raw.delete_older

    def delete_late(one: str, before: datetime) -> bool:
        place.raw.put(TENANT, SOURCE, "a", b"as before", "txt")
        return delete(one, before)

    monkeypatch.setattr(place.raw, "delete_older", delete_late)
    assert tidy(database, place.raw) == {}
    assert place.raw.get(key) == b"as before"


def test_a_file_that_gets_a_new_time_in_the_last_moment_is_put_back(
    folder: FolderPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = put(folder, b"as before", days=40)
    rename: Callable[[Path, Path], Path] = Path.rename

    def touch_and_rename(self: Path, target: Path) -> Path:
        if target.name.endswith(".tmp"):
            self.touch()
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", touch_and_rename)
    assert not folder.raw.delete_older(key, datetime.now(UTC) - timedelta(days=30))
    assert folder.keys() == {key}


def test_a_document_that_comes_back_keeps_its_bytes(
    database: Database, source_id: int, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = put(place, days=400)
    with database.write() as tx:
        expired = tx.now - timedelta(days=100)
        node = add_node(tx, source_id=source_id, raw_key=key, expired_at=expired)
    known = raw_objects._known_places

    def revive(found: Database) -> list[tuple[str, str]]:
        with found.write() as tx:
            tx.execute(sa.update(nodes).values(expired_at=None))
        return known(found)

    monkeypatch.setattr(raw_objects, "_known_places", revive)
    assert tidy(database, place.raw) == {}
    assert read_node(database, node).raw_key == key
    assert place.keys() == {key}


def test_unfinished_files_go_after_a_day(database: Database, source_id: int, folder: Any) -> None:
    del source_id
    key = put(folder)
    names = {
        ".0123456789abcdef0123456789abcdef.tmp": 25,
        ".ffffffffffffffffffffffffffffffff.tmp": 23,
    }
    for name, hours in names.items():
        unfinished = f"{key.rpartition('/')[0]}/{name}"
        folder.put_foreign(unfinished)
        folder.age(unfinished, timedelta(hours=hours))
    assert tidy(database, folder.raw, dry_run=True) == {"unfinished": (1, 8)}
    assert tidy(database, folder.raw, expired_days=0, old_days=0) == {"unfinished": (1, 8)}
    assert len(folder.keys()) == 2


def test_folders_that_are_empty_then_go_too(
    database: Database, source_id: int, folder: FolderPlace
) -> None:
    del source_id
    key = put(folder, days=40)
    tidy(database, folder.raw)
    assert not (folder.root / key).parent.exists()


def test_many_objects_are_listed_page_by_page(
    database: Database, source_id: int, stored: BucketPlace
) -> None:
    del source_id
    from tests.s3 import fill

    keys = [f"kept/here/raw/{TENANT}/{SOURCE}/{n}/{n:064x}.txt" for n in range(1001)]
    fill(stored.bucket, keys)
    asked = script(stored.client, "ListObjectsV2")
    listed = list(stored.raw.list_objects(TENANT, SOURCE))
    assert len(listed) == 1001
    assert len(asked) == 2
    later = datetime.now(UTC) + timedelta(days=31)
    assert tidy(database, stored.raw, dry_run=True, now=later) == {"old": (1001, 1001)}


def test_what_a_store_refuses_is_reported_and_the_rest_is_done(
    database: Database, source_id: int, stored: BucketPlace
) -> None:
    del source_id
    for name in "abc":
        put(stored, name=name, days=40)
    script(stored.client, "DeleteObject", None, Reply(403, "AccessDenied"), None)
    with pytest.raises(DocumentFault, match=r"1 could not be deleted; the first: .*AccessDenied"):
        tidy(database, stored.raw)
    assert len(stored.keys()) == 1
    assert tidy(database, stored.raw) == {"old": (1, 1)}


def test_a_store_that_refuses_everything_is_left_soon(
    database: Database, source_id: int, stored: BucketPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    del source_id
    monkeypatch.setattr(raw_objects, "MOST_FAILURES", 2)
    for name in "abcd":
        put(stored, name=name, days=40)
    asked = script(stored.client, "DeleteObject", *[Reply(403, "AccessDenied")] * 4)
    with pytest.raises(DocumentFault, match="AccessDenied"):
        tidy(database, stored.raw)
    assert len(asked) == 2


def test_a_server_that_is_no_s3_has_not_said_that_there_is_nothing(stored: BucketPlace) -> None:
    script(stored.client, "ListObjectsV2", Reply(body=b"<html></html>"))
    with pytest.raises(DocumentFault, match="not one of an S3 server"):
        list(stored.raw.list_objects(TENANT, SOURCE))


def test_a_place_where_nothing_was_ever_stored_is_empty(place: Place) -> None:
    assert list(place.raw.list_objects(TENANT, SOURCE)) == []


def test_young_bytes_are_not_written_twice_and_old_ones_are(
    stored: BucketPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = script(stored.client, "PutObject")
    for _ in range(2):
        stored.raw.put(TENANT, SOURCE, "a", b"x", "txt")
    assert len(asked) == 1
    for module in (rawstore, rawstore):
        monkeypatch.setattr(module, "RENEWED_AFTER", timedelta(0))
    stored.raw.put(TENANT, SOURCE, "a", b"x", "txt")
    assert len(asked) == 2


def test_a_page_that_went_back_and_forth_is_read_each_time(
    database: Database, tmp_path: Path
) -> None:
    """Through the whole path: what a run is about to need is there when it needs it."""
    work = Workplace(database, tmp_path / "home")
    folder = FolderPlace(tmp_path / "home")
    try:
        for about in ("mills", "turbines"):
            work.write("a.txt", make_text("Paper", about))
            work.ingest()
        for key in list(folder.keys()):
            if key.startswith("raw/"):
                folder.age(key, timedelta(days=40))
        work.write("a.txt", make_text("Paper", "mills"))
        lease = work.open()
        admission = work.app.admission(lease)
        batches = list(admission.fetch_batches(work.listed()))
        # Nothing is committed yet: of the bytes that are about to be needed nobody knows.
        assert tidy(database, work.app.raw) == {}
        for batch in batches:
            admission.record(batch)
        work.drain(lease.run.id)
        assert work.report(lease.run.id).counts[DocumentStatus.READY] == 1
    finally:
        work.close()


def test_listed_objects_have_their_size_and_time(place: Place) -> None:
    key = put(place, b"four")
    [found] = place.raw.list_objects(TENANT, SOURCE)
    assert found == StoredObject(key, 4, found.stored_at)
    assert abs(datetime.now(UTC) - found.stored_at) < timedelta(minutes=1)
    assert not found.is_unfinished
