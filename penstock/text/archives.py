"""ZIP archives made by strangers, opened without reading more of them than was asked for."""

import struct
import zipfile
from io import BytesIO

# A Word document has some dozens of parts; the directory of a million takes half a gigabyte.
DIRECTORY_BYTES = 4 * 1024**2

_END_MARK = b"PK\x05\x06"
_END_BYTES = 22
_LONGEST_COMMENT = 65_535
_BROKEN = (OSError, ValueError, NotImplementedError, struct.error, IndexError, OverflowError)


class ArchiveTooLarge(Exception):
    """The archive holds more than may be unpacked."""


def open_archive(content: bytes) -> zipfile.ZipFile:
    """The archive, its directory read; raises BadZipFile for whatever is wrong with it."""
    if _directory_bytes(content) > DIRECTORY_BYTES:
        raise ArchiveTooLarge(f"its directory takes more than {DIRECTORY_BYTES} bytes")
    try:
        return zipfile.ZipFile(BytesIO(content))
    except _BROKEN as error:
        raise zipfile.BadZipFile(str(error)) from error


def read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most_bytes: int) -> bytes:
    """The unpacked entry. Its declared size may be a lie, so the reading itself is bounded."""
    with archive.open(entry) as packed:
        unpacked = packed.read(most_bytes + 1)
    if len(unpacked) > most_bytes:
        raise ArchiveTooLarge(f"{entry.filename} unpacks to more than {most_bytes} bytes")
    return unpacked


def plain_name(entry: zipfile.ZipInfo) -> str:
    """The entry's name as others refer to it: some programs write backslashes, or other case."""
    return entry.filename.replace("\\", "/").lstrip("/").lower()


def _directory_bytes(content: bytes) -> int:
    start = content.rfind(_END_MARK, max(0, len(content) - _END_BYTES - _LONGEST_COMMENT))
    if start < 0 or start + _END_BYTES > len(content):
        return 0
    return int.from_bytes(content[start + 12 : start + 16], "little")
