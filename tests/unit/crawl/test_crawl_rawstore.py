"""What every raw store promises, and what only the one in a folder or in a bucket can."""

import errno
import os
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.crawl import s3 as s3_module
from penstock.crawl.files import extension_for
from penstock.crawl.rawstore import (
    LocalRawStore,
    RawStore,
    S3RawStore,
    escape_part,
    open_s3_raw_store,
)
from penstock.crawl.s3 import S3Access, build_s3_client
from penstock.errors import ConfigurationError, DocumentFault, ErrorClass, StorageFull
from tests.s3 import Reply, script

ODD_IDS = [
    "a/b",
    "a_b",
    "a%2Fb",
    ".",
    "..",
    "../../x",
    "",
    "~",
    ".hidden",
    "ü",
    "u\u0308",
    "a\x00b",
]


class Place(Protocol):
    """Where a store keeps its bytes, looked at from outside."""

    store: RawStore

    def keys(self) -> list[str]:
        """Everything that lies there, also outside the store."""

    def version(self, key: str) -> object:
        """Something that changes whenever the key is written."""

    def overwrite(self, key: str, content: bytes) -> None: ...


class FolderPlace:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.store: RawStore = LocalRawStore(root / "store")

    def keys(self) -> list[str]:
        paths = (path for path in self.root.rglob("*") if path.is_file())
        return sorted(path.relative_to(self.root).as_posix() for path in paths)

    def version(self, key: str) -> object:
        return (self.root / "store" / key).stat()

    def overwrite(self, key: str, content: bytes) -> None:
        (self.root / "store" / key).write_bytes(content)


class BucketPlace:
    def __init__(self, client: Any, bucket: str) -> None:
        self.client = client
        self.bucket = bucket
        self.store: RawStore = S3RawStore(client, bucket, "store")
        versioned = {"Status": "Enabled"}
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=versioned)

    def keys(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.bucket)
        return [entry["Key"] for entry in found.get("Contents", ())]

    def version(self, key: str) -> object:
        head = self.client.head_object(Bucket=self.bucket, Key=f"store/{key}")
        return head["VersionId"]

    def overwrite(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=f"store/{key}", Body=content)


@pytest.fixture
def folder(tmp_path: Path) -> FolderPlace:
    return FolderPlace(tmp_path)


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
def store(place: Place) -> RawStore:
    return place.store


def test_bytes_come_back_by_their_key(place: Place) -> None:
    key = place.store.put("acme", "careers", "jobs/1", b"hello", "html")
    assert key == (
        "raw/acme/careers/jobs%2F1/"
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824.html"
    )
    assert place.store.get(key) == b"hello"
    assert place.keys() == [f"store/{key}"]


def test_a_document_without_a_byte_is_kept_too(store: RawStore) -> None:
    assert store.get(store.put("t", "s", "a", b"", "txt")) == b""


def test_the_same_content_is_written_once(place: Place) -> None:
    key = place.store.put("t", "s", "a", b"x", "txt")
    before = place.version(key)
    assert place.store.put("t", "s", "a", b"x", "txt") == key
    assert place.version(key) == before
    assert len(place.keys()) == 1


def test_what_is_there_in_part_is_written_again(place: Place) -> None:
    key = place.store.put("t", "s", "a", b"whole", "txt")
    place.overwrite(key, b"")
    place.store.put("t", "s", "a", b"whole", "txt")
    assert place.store.get(key) == b"whole"


def test_odd_ids_neither_collide_nor_leave_the_store(place: Place) -> None:
    keys = {place.store.put("t", "s", external_id, b"x", "txt") for external_id in ODD_IDS}
    assert len(keys) == len(ODD_IDS)
    assert place.keys() == sorted(f"store/{key}" for key in keys)
    assert all(key.startswith("raw/t/s/") for key in keys)
    assert all(place.store.get(key) == b"x" for key in keys)


def test_odd_tenants_and_sources_stay_in_the_store(place: Place) -> None:
    place.store.put("../..", "/etc/x", "a", b"x", "../sh")
    (key,) = place.keys()
    assert key.startswith("store/raw/")


def test_long_ids_are_shortened_and_stay_apart(store: RawStore) -> None:
    keys = [store.put("t", "s", "ü" * 2000 + end, b"x", "txt") for end in "ab"]
    assert keys[0] != keys[1]
    assert all(store.get(key) == b"x" for key in keys)
    assert max(len(part) for key in keys for part in key.split("/")) <= 200


def test_deleted_bytes_are_gone_and_may_be_deleted_again(place: Place) -> None:
    key = place.store.put("t", "s", "a", b"x", "txt")
    place.store.delete(key)
    place.store.delete(key)
    assert place.keys() == []
    with pytest.raises(DocumentFault) as caught:
        place.store.get(key)
    assert caught.value.kind is ErrorClass.UNAVAILABLE


def test_the_versions_of_a_document_are_found_by_any_of_them(store: RawStore) -> None:
    old, new = (store.put("t", "s", "a", content, "txt") for content in (b"old", b"new"))
    store.put("t", "s", "a/b", b"of another document", "txt")
    store.put("t", "s", "ab", b"of another document", "txt")
    for key in (old, new):
        assert sorted(one.key for one in store.versions(key)) == sorted([old, new])
    store.delete(old)
    store.delete(new)
    assert store.versions(new) == []


def test_deleting_one_version_keeps_the_other(store: RawStore) -> None:
    old, new = (store.put("t", "s", "a", content, "txt") for content in (b"old", b"new"))
    store.delete(old)
    assert store.get(new) == b"new"


@pytest.mark.parametrize("key", ["", "/etc/passwd", "raw/../../x", "other/a", "raw//x", "raw/./x"])
def test_what_is_no_key_is_refused(store: RawStore, key: str) -> None:
    for use in (store.get, store.delete, store.locate):
        with pytest.raises(DocumentFault, match="not a key"):
            use(key)


@settings(deadline=None)
@given(st.text(max_size=300), st.text(max_size=300))
def test_different_texts_have_different_parts(a: str, b: str) -> None:
    assert (escape_part(a) == escape_part(b)) == (a == b)
    assert escape_part(a) not in {"", ".", ".."}
    assert len(escape_part(a)) <= 200


def test_a_shortened_part_cannot_be_typed() -> None:
    assert escape_part(escape_part("x" * 300)) != escape_part("x" * 300)


def test_a_folder_says_where_the_bytes_lie(folder: FolderPlace) -> None:
    key = folder.store.put("t", "s", "a", b"x", "txt")
    assert folder.store.locate(key) == folder.root / "store" / key


def test_a_folder_keeps_no_empty_folders(folder: FolderPlace) -> None:
    key = folder.store.put("t", "s", "a", b"x", "txt")
    folder.store.delete(key)
    assert not (folder.root / "store" / key).parent.exists()


def test_a_full_disk_is_not_a_document_fault_and_leaves_no_file(
    folder: FolderPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageFull, match=r"could not store raw bytes.*No space left"):
        folder.store.put("t", "s", "a", b"x", "txt")
    assert folder.keys() == []


def test_a_root_that_is_a_file_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DocumentFault, match="could not store raw bytes"):
        LocalRawStore(tmp_path / "file").put("t", "s", "a", b"x", "txt")


def test_bytes_in_a_bucket_lie_in_no_file(stored: BucketPlace) -> None:
    assert stored.store.locate(stored.store.put("t", "s", "a", b"x", "txt")) is None


@pytest.mark.parametrize(
    ("location", "before"),
    [("s3://{}", ""), ("s3://{}/", ""), ("s3://{}/some/prefix", "some/prefix/")],
)
def test_a_location_is_a_bucket_and_what_keys_begin_with(
    stored: BucketPlace, location: str, before: str
) -> None:
    store = open_s3_raw_store(stored.client, location.format(stored.bucket))
    key = store.put("t", "s", "a", b"x", "txt")
    assert stored.keys() == [before + key]


def test_a_location_without_a_bucket_names_the_setting() -> None:
    with pytest.raises(ConfigurationError, match=r"PENSTOCK_RAW_STORE.*s3://bucket/prefix"):
        open_s3_raw_store(None, "s3:///prefix")


def test_who_may_not_look_writes_at_once(stored: BucketPlace) -> None:
    script(stored.client, "HeadObject", Reply(403, "AccessDenied"))
    assert stored.store.get(stored.store.put("t", "s", "a", b"x", "txt")) == b"x"


def test_who_may_not_write_has_something_to_configure(stored: BucketPlace) -> None:
    script(stored.client, "PutObject", Reply(403, "AccessDenied"))
    with pytest.raises(ConfigurationError, match=rf"{stored.bucket}.*PENSTOCK_RAW_STORE"):
        stored.store.put("t", "s", "a", b"x", "txt")


def test_a_missing_bucket_is_named_with_its_setting(s3: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"no bucket 'nowhere'.*PENSTOCK_RAW_STORE"):
        S3RawStore(s3, "nowhere").put("t", "s", "a", b"x", "txt")


def test_a_server_that_says_not_found_has_nothing_to_delete(stored: BucketPlace) -> None:
    key = stored.store.put("t", "s", "a", b"x", "txt")
    script(stored.client, "DeleteObject", Reply(404, "NoSuchKey"), Reply(404, "NoSuchBucket"))
    stored.store.delete(key)
    with pytest.raises(ConfigurationError, match="no bucket"):
        stored.store.delete(key)


def test_bytes_that_break_off_are_a_fault(stored: BucketPlace) -> None:
    key = stored.store.put("t", "s", "a", b"whole", "txt")
    script(stored.client, "GetObject", Reply(body=b"who", headers={"content-length": "5"}))
    with pytest.raises(DocumentFault, match="could not read raw bytes") as caught:
        stored.store.get(key)
    assert caught.value.kind is ErrorClass.UNAVAILABLE


def test_a_server_that_is_down_is_a_fault_that_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3_module, "TRIES", 1)
    access = S3Access("http://127.0.0.1:9", "us-east-1", "key", "secret")
    store = S3RawStore(build_s3_client(access), "bucket")
    with pytest.raises(DocumentFault, match=r"127\.0\.0\.1:9") as caught:
        store.put("t", "s", "a", b"x", "txt")
    assert not caught.value.kind.permanent


@pytest.mark.parametrize(
    ("name", "media_type", "extension"),
    [
        ("cv.PDF", None, "pdf"),
        ("a/b.tar.gz", None, "gz"),
        ("README", None, "bin"),
        ("notes.md", "text/plain", "md"),
        ("notes", "text/plain; charset=utf-8", "txt"),
        ("https://a.test/view.php?id=1.pdf", "text/html; charset=utf-8", "html"),
        ("https://a.test/cv.pdf?x=1", "application/octet-stream", "pdf"),
        ("https://example.com", None, "bin"),
        ("odd.<script>", None, "bin"),
        ("long.extensionextension", None, "bin"),
        ("trailing.", None, "bin"),
    ],
)
def test_extensions_follow_the_type_then_the_name(
    name: str, media_type: str | None, extension: str
) -> None:
    assert extension_for(name, media_type) == extension
