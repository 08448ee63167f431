"""Archives give no more than was asked for, and one kind of error."""

import struct
import zipfile
from io import BytesIO

import pytest

from penstock.text.media_types import ArchiveTooLarge, entry_name, open_archive, read_entry


def make_archive(name: str = "a.txt", content: bytes = b"words") -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def test_an_entry_is_read_up_to_the_limit() -> None:
    with open_archive(make_archive()) as archive:
        (entry,) = archive.infolist()
        assert read_entry(archive, entry, 5) == b"words"
        with pytest.raises(ArchiveTooLarge, match=r"a\.txt unpacks to more than 4 bytes"):
            read_entry(archive, entry, 4)


def test_a_wrong_declared_size_is_detected() -> None:
    lying = make_archive(content=bytes(1_000_000)).replace(
        struct.pack("<I", 1_000_000), struct.pack("<I", 10)
    )
    with open_archive(lying) as archive, pytest.raises(zipfile.BadZipFile):
        read_entry(archive, archive.infolist()[0], 2_000_000)


def test_a_directory_without_end_is_not_read() -> None:
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 5_000_000, 0, 0)
    with pytest.raises(ArchiveTooLarge, match="directory"):
        open_archive(bytes(5_000_000) + end)


@pytest.mark.parametrize(
    "content",
    [b"", b"PK", make_archive()[:40], b"PK\x05\x06" + bytes(18)[:9]],
    ids=["nothing", "a mark", "half an archive", "half an end"],
)
def test_what_is_no_archive_is_a_bad_one(content: bytes) -> None:
    with pytest.raises(zipfile.BadZipFile):
        open_archive(content)


def test_names_are_compared_in_one_spelling() -> None:
    assert entry_name(zipfile.ZipInfo("Word\\Document.xml")) == "word/document.xml"
