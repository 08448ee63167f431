import inspect
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.crawl.files import FolderListing, SingleFileListing, escape_undecodable
from penstock.errors import ListingFailed


def write(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def ids(root: Path) -> list[str]:
    return [listed.external_id for listed in FolderListing(root).list()]


def test_files_are_listed_recursively_in_a_fixed_order(tmp_path: Path) -> None:
    write(tmp_path, "b.txt", "a/z.txt", "a/b/c.txt", "a.txt", "Z.txt")
    assert ids(tmp_path) == ["Z.txt", "a/b/c.txt", "a/z.txt", "a.txt", "b.txt"]


def test_a_listed_file_says_where_it_is(tmp_path: Path) -> None:
    write(tmp_path, "a b/ü.txt")
    (listed,) = FolderListing(tmp_path).list()
    assert listed.path == tmp_path / "a b" / "ü.txt"
    assert listed.url == f"file://{tmp_path}/a%20b/%C3%BC.txt"


def test_hidden_files_and_folders_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, ".hidden", ".git/config", "a/.DS_Store", "a/b")
    assert ids(tmp_path) == ["a/b"]


def test_an_empty_folder_lists_nothing(tmp_path: Path) -> None:
    assert ids(tmp_path) == []


def test_a_folder_that_is_gone_is_not_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ListingFailed, match="gone"):
        ids(tmp_path / "gone")


def test_an_unreadable_folder_fails_the_listing_midway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.txt", "locked/b.txt", "z.txt")
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if os.fspath(path).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found: Iterator[Any] = FolderListing(tmp_path).list()
    assert next(found).external_id == "a.txt"
    with pytest.raises(ListingFailed, match=r"locked: Permission denied"):
        next(found)


def test_linked_files_are_listed(tmp_path: Path) -> None:
    write(tmp_path, "outside.txt", "root/a.txt")
    (tmp_path / "root/link.txt").symlink_to(tmp_path / "outside.txt")
    assert ids(tmp_path / "root") == ["a.txt", "link.txt"]


def test_linked_folders_outside_are_followed_once(tmp_path: Path) -> None:
    write(tmp_path, "outside/o.txt", "root/a.txt")
    (tmp_path / "root/link1").symlink_to(tmp_path / "outside")
    (tmp_path / "root/link2").symlink_to(tmp_path / "outside")
    assert ids(tmp_path / "root") == ["a.txt", "link1/o.txt"]


def test_links_that_loop_end(tmp_path: Path) -> None:
    write(tmp_path, "root/a/b/c.txt")
    (tmp_path / "root/a/b/up").symlink_to("../..")
    (tmp_path / "root/a/self").symlink_to(".")
    (tmp_path / "root/a/parent").symlink_to(tmp_path)
    assert ids(tmp_path / "root") == ["a/b/c.txt"]


def test_a_folder_keeps_its_own_name_beside_a_link_to_it(tmp_path: Path) -> None:
    write(tmp_path, "real/c.txt", ".store/d.txt")
    (tmp_path / "alias").symlink_to("real")
    (tmp_path / "data").symlink_to(".store")
    assert ids(tmp_path) == ["data/d.txt", "real/c.txt"]


def test_a_broken_link_is_one_document_and_not_a_broken_listing(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "itself").symlink_to("itself")
    assert ids(tmp_path) == ["dangling", "itself"]


def test_a_pipe_is_listed_and_not_ignored(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert ids(tmp_path) == ["pipe"]


def test_names_that_are_not_utf8_have_ids_that_are(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    Path(os.fsdecode(raw)).write_text("x")
    write(tmp_path, "caf%E9.txt", "café.txt", "cafe\u0301.txt", "100%.txt", "a\nb.txt", "a%20b")
    found = list(FolderListing(tmp_path).list())
    assert {listed.external_id for listed in found} == {
        "caf%E9.txt",
        "caf%25E9.txt",
        "café.txt",
        "cafe\u0301.txt",
        "100%.txt",
        "a\nb.txt",
        "a%20b",
    }
    assert all(listed.path is not None and listed.path.read_text() for listed in found)


def test_escaped_names_never_collide() -> None:
    names = ["\udce9", "%E9", "%25E9", "%2525E9", "%", "%\udce9", "%2", "%25", "é"]
    assert len({escape_undecodable(name) for name in names}) == len(names)


@contextmanager
def deep_folders(root: Path, depth: int) -> Iterator[None]:
    """Folders in folders; taken down step by step, because shutil.rmtree recurses."""
    descriptors = [os.open(root, os.O_RDONLY)]
    try:
        for _ in range(depth):
            os.mkdir("d", dir_fd=descriptors[-1])
            descriptors.append(os.open("d", os.O_RDONLY, dir_fd=descriptors[-1]))
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=descriptors[-1]))
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink("f", dir_fd=descriptors[-1])
        os.close(descriptors.pop())
        while descriptors:
            os.rmdir("d", dir_fd=descriptors[-1])
            os.close(descriptors.pop())


def test_folders_may_be_deeper_than_python_recurses(tmp_path: Path) -> None:
    depth, limit = 300, sys.getrecursionlimit()
    with deep_folders(tmp_path, depth):
        sys.setrecursionlimit(len(inspect.stack(0)) + 100)
        try:
            found = ids(tmp_path)
        finally:
            sys.setrecursionlimit(limit)
    assert found == ["d/" * depth + "f"]


def test_a_folder_is_read_only_when_its_turn_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, *[f"{folder}/{name}" for folder in range(5) for name in "ab"])
    scandir, read = os.scandir, list[str]()

    def count(path: Any) -> Any:
        read.append(Path(path).name)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", count)
    found = FolderListing(tmp_path).list()
    assert [next(found).external_id for _ in range(3)] == ["0/a", "0/b", "1/a"]
    assert read == [tmp_path.name, "0", "1"]


def test_a_source_is_named_by_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "docs/a.txt")
    folder = FolderListing(Path("docs/../docs/"))
    assert (folder.kind, folder.location) == ("folder", f"{tmp_path}/docs")
    file = SingleFileListing(Path("docs/a.txt"))
    assert (file.kind, file.location) == ("file", f"{tmp_path}/docs/a.txt")
    (listed,) = file.list()
    assert (listed.external_id, listed.path) == ("a.txt", tmp_path / "docs/a.txt")
