"""Local files as sources: a folder, a single file, or a text file of URLs."""

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from penstock.crawl.listing import Listed
from penstock.crawl.urls import normalise_url
from penstock.errors import DocumentFault, ErrorClass, ListingFailed

# Python shows a byte that is not UTF-8 as a lone surrogate, which no database accepts.
_UNDECODABLE = re.compile("[\udc80-\udcff]")
_LOOKS_ESCAPED = re.compile("%(?=25|[89A-F][0-9A-F])")


def absolute_path(path: Path) -> Path:
    """The absolute path. Links are kept, so that the source's name survives a changed link."""
    return Path(os.path.abspath(path))  # noqa: PTH100 (resolve() would follow the links)


def escape_undecodable(name: str) -> str:
    """The name with bytes that are not UTF-8 written as `%E9`.

    A per cent sign that would read as such an escape becomes `%25`, so names never collide.
    """
    literal = _LOOKS_ESCAPED.sub("%25", name)
    return _UNDECODABLE.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", literal)


@dataclass(frozen=True, slots=True)
class _PathListing:
    path: Path

    @property
    def location(self) -> str:
        return escape_undecodable(str(absolute_path(self.path)))


@dataclass(frozen=True, slots=True)
class SingleFileListing(_PathListing):
    """One local file."""

    kind: str = field(default="file", init=False)

    def list(self) -> Iterator[Listed]:
        path = absolute_path(self.path)
        yield Listed(escape_undecodable(path.name), path.as_uri(), path=path)


@dataclass(frozen=True, slots=True)
class FolderListing(_PathListing):
    """All files below a folder, in a fixed order; hidden ones (leading dot) are left out."""

    kind: str = field(default="folder", init=False)

    def list(self) -> Iterator[Listed]:
        root = absolute_path(self.path)
        for relative in _Walk(root).files():
            path = root / relative
            yield Listed(escape_undecodable(relative), path.as_uri(), path=path)


class _Walk:
    """Walks a tree and enters each real folder at most once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._real_root = os.path.realpath(root)
        self._entered: set[tuple[int, int]] = set()

    def files(self) -> Iterator[str]:
        """Paths relative to the root. A stack, because trees may be deeper than Python recurses."""
        stack = [self._enter("")]
        while stack:
            for relative, is_folder in stack[-1]:
                if is_folder:
                    stack.append(self._enter(relative + "/"))
                    break
                yield relative
            else:
                stack.pop()

    def _enter(self, prefix: str) -> Iterator[tuple[str, bool]]:
        folder = self._root / prefix
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in self._entered:
                return iter(())
            self._entered.add((status.st_dev, status.st_ino))
            entries = self._sorted_entries(folder)
        except OSError as error:
            raise ListingFailed(
                f"could not list the folder {escape_undecodable(str(folder))}: "
                f"{error.strerror or error}; make it readable, or move it out of the source"
            ) from error
        return ((prefix + name, is_folder) for name, is_folder in entries)

    def _sorted_entries(self, folder: Path) -> list[tuple[str, bool]]:
        # Plain tuples: a scandir entry holds several times their memory until it is used.
        with os.scandir(folder) as entries:
            visible = (entry for entry in entries if not entry.name.startswith("."))
            return sorted(
                (entry.name, _is_folder(entry)) for entry in visible if not self._repeats(entry)
            )

    def _repeats(self, entry: "os.DirEntry[str]") -> bool:
        """Whether it is a link to a folder that this walk lists under its own name."""
        if not entry.is_symlink() or not _is_folder(entry):
            return False
        real = os.path.realpath(entry.path)
        if real == self._real_root:
            return True
        if not real.startswith(self._real_root.rstrip("/") + "/"):
            return False
        inside = os.path.relpath(real, self._real_root)
        return not any(part.startswith(".") for part in inside.split("/"))


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link that cannot be followed is one broken document, not a broken listing.
        return False


def path_of_uri(uri: str) -> Path:
    """The file that a `file:` URI names, whatever bytes its name is made of."""
    return Path(os.fsdecode(unquote_to_bytes(urlsplit(uri).path)))


# A file that changed this short a time before it was read may change again within the same tick of
# its file system's clock (two seconds on FAT), and would look unchanged.
SETTLED_SECONDS = 2.0


def file_version(status: os.stat_result) -> str:
    """Names one state of a file, as an ETag names one of a page: every write gives it another one.

    The time of the last change of the inode cannot be set by programs, unlike the time of the last
    write, which `cp -p` and `rsync` carry over.
    """
    return f"{status.st_size:x}-{status.st_mtime_ns:x}-{status.st_ctime_ns:x}-{status.st_ino:x}"


def has_version(path: Path, version: str) -> bool:
    """Whether the file still is as it was when it had this version, so need not be read."""
    try:
        return file_version(path.stat()) == version
    except OSError:
        return False


def read_file(path: Path, max_bytes: int) -> tuple[bytes, str | None]:
    """The file's bytes and their version, which is None while it may still change unnoticed;
    DocumentFault when it cannot be read."""
    with _read_errors(path):
        # Opening a device can already have an effect, so the type is checked before and after.
        _check_status(path, path.stat(), max_bytes)
        # Without O_NONBLOCK, opening a FIFO that replaced the file would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            _check_status(path, status, max_bytes)
            settled = time.time() - max(status.st_mtime, status.st_ctime) > SETTLED_SECONDS
            # The file may have grown since its size was read.
            content = file.read(max_bytes + 1)
    _check_size(path, len(content), max_bytes)
    return content, file_version(status) if settled else None


def check_file(path: Path, max_bytes: int) -> int:
    """The size of the file; DocumentFault when `read_file` would refuse it."""
    with _read_errors(path):
        status = path.stat()
        _check_status(path, status, max_bytes)
        return status.st_size


@contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        message = f"no permission to read {_shown(path)}; grant it to the user that runs Penstock"
        raise DocumentFault(ErrorClass.FORBIDDEN, message) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        message = f"{_shown(path)} is no longer there"
        raise DocumentFault(ErrorClass.UNAVAILABLE, message) from error
    except OSError as error:
        message = f"could not read {_shown(path)}: {error.strerror or error}"
        raise DocumentFault(ErrorClass.UNAVAILABLE, message) from error


def _check_status(path: Path, status: os.stat_result, max_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        message = f"{_shown(path)} is not a regular file (a pipe, socket, device or folder)"
        raise DocumentFault(ErrorClass.UNSUPPORTED, message)
    _check_size(path, status.st_size, max_bytes)


def _check_size(path: Path, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise DocumentFault(
            ErrorClass.TOO_LARGE,
            f"{_shown(path)} has {size} bytes, more than the {max_bytes} allowed; "
            "raise PENSTOCK_MAX_DOCUMENT_BYTES to accept it",
        )


def _shown(path: Path) -> str:
    return escape_undecodable(str(path))


_MAX_LINE_BYTES = 8192


@dataclass(frozen=True, slots=True)
class UrlListListing(_PathListing):
    """The URLs of a file; blank lines and lines that start with # are left out."""

    kind: str = field(default="url_list", init=False)

    def list(self) -> Iterator[Listed]:
        seen: set[str] = set()
        try:
            for number, line in _lines(self.path):
                url = normalise_url(line)
                if url is None:
                    message = f"{self.location}, line {number}: not an http(s) URL: {line}"
                    raise ListingFailed(message)
                if url not in seen:
                    seen.add(url)
                    yield Listed(url, url)
        except OSError as error:
            message = f"could not read {self.location}: {error.strerror or error}"
            raise ListingFailed(message) from error


def holds_only_urls(path: Path) -> bool:
    """Whether a regular file has at least one URL, and nothing but URLs and comments."""
    found = False
    if path.is_file():
        with suppress(OSError):
            for _, line in _lines(path):
                if normalise_url(line) is None:
                    return False
                found = True
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    # Lines are read with a limit: the file may be of any kind, and have no line ends.
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE_BYTES), b""), start=1):
            text = line.decode("utf-8-sig", "replace").strip()
            if text and not text.startswith("#"):
                yield number, text


_EXTENSIONS = {
    "application/json": "json",
    "application/ld+json": "json",
    "application/msword": "doc",
    "application/pdf": "pdf",
    "application/rtf": "rtf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/xhtml+xml": "html",
    "application/xml": "xml",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
    "text/xml": "xml",
}
_MAX_EXTENSION_CHARS = 8


def extension_for(name: str, media_type: str | None) -> str:
    """The extension of the declared type, else that of the name; `bin` when neither has one.

    The type comes first because pages are often called `view.php`, or have no extension.
    """
    declared = (media_type or "").partition(";")[0].strip().lower()
    if declared in _EXTENSIONS:
        return _EXTENSIONS[declared]
    if "://" in name:
        address = name.partition("#")[0].partition("?")[0]
        name = unquote(address.partition("://")[2].partition("/")[2])
    suffix = PurePosixPath(name).suffix.removeprefix(".").lower()
    if suffix.isascii() and suffix.isalnum() and len(suffix) <= _MAX_EXTENSION_CHARS:
        return suffix
    return "txt" if declared == "text/plain" else "bin"
