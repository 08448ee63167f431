import os
import socket
from pathlib import Path

import pytest

from penstock.crawl.fetch import Fetched, Fetcher, Marks
from penstock.crawl.listing import Listed
from penstock.errors import DocumentFault, ErrorClass

from .conftest import MakeFetcher


def listed(path: Path) -> Listed:
    return Listed(path.name, path.as_uri(), path=path)


def fault_of(fetcher: Fetcher, path: Path) -> DocumentFault:
    with pytest.raises(DocumentFault) as caught:
        fetcher.fetch(listed(path))
    return caught.value


def test_a_local_file_comes_through_the_same_door(tmp_path: Path, fetcher: Fetcher) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"hello")
    fetched = fetcher.fetch(listed(path), Marks(etag='"x"'))
    assert fetched == Fetched(b"hello", None, None, None, path.as_uri())


def test_a_file_over_the_limit_is_refused_unread(tmp_path: Path, make_fetcher: MakeFetcher) -> None:
    path = tmp_path / "big"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    fault = fault_of(make_fetcher(max_bytes=10), path)
    assert fault.kind is ErrorClass.TOO_LARGE
    assert str(1 << 40) in str(fault)
    assert "PENSTOCK_MAX_DOCUMENT_BYTES" in str(fault)


def test_a_file_at_the_limit_is_read(tmp_path: Path, make_fetcher: MakeFetcher) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 10)
    fetched = make_fetcher(max_bytes=10).fetch(listed(path))
    assert isinstance(fetched, Fetched)
    assert len(fetched.content) == 10


def test_a_file_that_may_not_be_read_is_forbidden(
    tmp_path: Path, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.touch()

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert fault_of(fetcher, path).kind is ErrorClass.FORBIDDEN


def test_a_file_that_vanished_is_unavailable(tmp_path: Path, fetcher: Fetcher) -> None:
    assert fault_of(fetcher, tmp_path / "gone").kind is ErrorClass.UNAVAILABLE


def test_a_link_to_itself_is_unavailable(tmp_path: Path, fetcher: Fetcher) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert fault_of(fetcher, tmp_path / "loop").kind is ErrorClass.UNAVAILABLE


@pytest.mark.timeout(10)
def test_a_pipe_is_unsupported_and_not_waited_for(tmp_path: Path, fetcher: Fetcher) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert fault_of(fetcher, tmp_path / "pipe").kind is ErrorClass.UNSUPPORTED


@pytest.mark.full_suite
def test_a_socket_or_folder_is_unsupported(
    tmp_path: Path, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind("sock")
        assert fault_of(fetcher, tmp_path / "sock").kind is ErrorClass.UNSUPPORTED
    assert fault_of(fetcher, tmp_path).kind is ErrorClass.UNSUPPORTED
