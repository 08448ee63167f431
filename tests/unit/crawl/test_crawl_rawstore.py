import errno
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.crawl.extension import extension_for
from penstock.crawl.rawstore import LocalRawStore, RawStore, escape_part
from penstock.errors import DocumentFault, ErrorClass

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


@pytest.fixture
def store(tmp_path: Path) -> RawStore:
    return LocalRawStore(tmp_path / "store")


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def test_bytes_come_back_by_their_key(store: RawStore) -> None:
    key = store.put("acme", "careers", "jobs/1", b"hello", "html")
    assert key == (
        "raw/acme/careers/jobs%2F1/"
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824.html"
    )
    assert store.get(key) == b"hello"


def test_the_same_content_is_written_once(store: RawStore, tmp_path: Path) -> None:
    key = store.put("t", "s", "a", b"x", "txt")
    before = (tmp_path / "store" / key).stat()
    assert store.put("t", "s", "a", b"x", "txt") == key
    assert (tmp_path / "store" / key).stat() == before
    assert len(files(tmp_path)) == 1


def test_a_file_torn_by_a_power_cut_is_written_again(store: RawStore, tmp_path: Path) -> None:
    key = store.put("t", "s", "a", b"whole", "txt")
    (tmp_path / "store" / key).write_bytes(b"")
    store.put("t", "s", "a", b"whole", "txt")
    assert store.get(key) == b"whole"


def test_odd_ids_neither_collide_nor_leave_the_root(store: RawStore, tmp_path: Path) -> None:
    keys = {store.put("t", "s", external_id, b"x", "txt") for external_id in ODD_IDS}
    assert len(keys) == len(ODD_IDS)
    assert len(files(tmp_path / "store" / "raw" / "t" / "s")) == len(ODD_IDS)
    assert len(files(tmp_path)) == len(ODD_IDS)


def test_odd_tenants_and_sources_stay_below_the_root(store: RawStore, tmp_path: Path) -> None:
    store.put("../..", "/etc/x", "a", b"x", "../sh")
    assert len(files(tmp_path / "store" / "raw")) == 1


def test_long_ids_are_shortened_and_stay_apart(store: RawStore) -> None:
    keys = [store.put("t", "s", "ü" * 2000 + end, b"x", "txt") for end in "ab"]
    assert keys[0] != keys[1]
    assert all(store.get(key) == b"x" for key in keys)
    assert max(len(part) for key in keys for part in key.split("/")) <= 200


@settings(deadline=None)
@given(st.text(max_size=300), st.text(max_size=300))
def test_different_texts_have_different_parts(a: str, b: str) -> None:
    assert (escape_part(a) == escape_part(b)) == (a == b)
    assert escape_part(a) not in {"", ".", ".."}
    assert len(escape_part(a)) <= 200


def test_a_shortened_part_cannot_be_typed() -> None:
    assert escape_part(escape_part("x" * 300)) != escape_part("x" * 300)


def test_deleted_bytes_are_gone_and_leave_no_folder(store: RawStore, tmp_path: Path) -> None:
    key = store.put("t", "s", "a", b"x", "txt")
    store.delete(key)
    store.delete(key)
    assert not (tmp_path / "store" / key).parent.exists()
    with pytest.raises(DocumentFault) as caught:
        store.get(key)
    assert caught.value.kind is ErrorClass.UNAVAILABLE


def test_deleting_one_version_keeps_the_other(store: RawStore) -> None:
    old, new = (store.put("t", "s", "a", content, "txt") for content in (b"old", b"new"))
    store.delete(old)
    assert store.get(new) == b"new"


@pytest.mark.parametrize("key", ["", "/etc/passwd", "raw/../../x", "other/a", "raw//x", "raw/./x"])
def test_what_is_no_key_is_refused(store: RawStore, key: str) -> None:
    for use in (store.get, store.delete):
        with pytest.raises(DocumentFault, match="not a key"):
            use(key)


def test_a_full_disk_is_a_fault_and_leaves_nothing_behind(
    store: RawStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(DocumentFault, match=r"could not store raw bytes.*No space left") as caught:
        store.put("t", "s", "a", b"x", "txt")
    assert caught.value.kind is ErrorClass.UNAVAILABLE
    assert files(tmp_path) == []


def test_a_root_that_is_a_file_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DocumentFault, match="could not store raw bytes"):
        LocalRawStore(tmp_path / "file").put("t", "s", "a", b"x", "txt")


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
