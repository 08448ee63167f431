"""Reading a local file without blocking on what only looks like one."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from penstock.crawl.filename import escape_undecodable
from penstock.errors import DocumentFault, ErrorClass


def path_of_uri(uri: str) -> Path:
    """The file that a `file:` URI names, whatever bytes its name is made of."""
    return Path(os.fsdecode(unquote_to_bytes(urlsplit(uri).path)))


def read_file(path: Path, max_bytes: int) -> bytes:
    """The file's bytes, or a DocumentFault that says why there are none."""
    with _explained(path):
        return _read_regular(path, max_bytes)


def check_file(path: Path, max_bytes: int) -> int:
    """The size of a file that can be read as it stands, or a DocumentFault."""
    with _explained(path):
        status = path.stat()
        _check_regular(path, status)
        _check_size(path, status.st_size, max_bytes)
        return status.st_size


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        message = f"no permission to read {_shown(path)}; grant it to the user who runs Penstock"
        raise DocumentFault(ErrorClass.FORBIDDEN, message) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        message = f"{_shown(path)} is no longer there"
        raise DocumentFault(ErrorClass.UNAVAILABLE, message) from error
    except OSError as error:
        message = f"could not read {_shown(path)}: {error.strerror or error}"
        raise DocumentFault(ErrorClass.UNAVAILABLE, message) from error


def _read_regular(path: Path, max_bytes: int) -> bytes:
    # Opening a device can already have an effect, so the kind is asked before and after.
    _check_regular(path, path.stat())
    # Without O_NONBLOCK, opening a FIFO that took the file's place waits for a writer for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        _check_regular(path, status)
        _check_size(path, status.st_size, max_bytes)
        # The file may have grown since its size was asked.
        content = file.read(max_bytes + 1)
    _check_size(path, len(content), max_bytes)
    return content


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        message = f"{_shown(path)} is not a regular file (a pipe, socket, device or folder)"
        raise DocumentFault(ErrorClass.UNSUPPORTED, message)


def _check_size(path: Path, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise DocumentFault(
            ErrorClass.TOO_LARGE,
            f"{_shown(path)} has {size} bytes, more than the {max_bytes} allowed; "
            "raise PENSTOCK_MAX_DOCUMENT_BYTES to accept it",
        )


def _shown(path: Path) -> str:
    return escape_undecodable(str(path))
