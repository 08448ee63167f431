"""Raw bytes of documents, kept under keys that name tenant, source, document and content."""

import errno
import hashlib
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from penstock.errors import DocumentFault, ErrorClass, StorageFull
from penstock.faults import reach

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_MAX_PART_BYTES = 200
_HEAD_BYTES = _MAX_PART_BYTES - 65
_PART = r"(?!\.)[A-Za-z0-9_.~%-]{1,200}"
_KEY = re.compile(rf"raw/{_PART}/{_PART}/{_PART}/[0-9a-f]{{64}}\.{_PART}")
_UNFINISHED = re.compile(rf"raw/{_PART}/{_PART}/{_PART}/\.[0-9a-f]{{32}}\.tmp")
# In the place of a source's name, for what comes from no source.
UPLOADS = "uploads"
PAYLOADS = "nodes"
# Bytes that are stored once more get a new time when theirs is older than this: whoever stores
# them is about to refer to them, and what is old and nobody refers to is deleted some day.
RENEWED_AFTER = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """Something that lies in a raw store."""

    key: str
    size: int
    stored_at: datetime

    @property
    def is_unfinished(self) -> bool:
        """Left behind by a process that died while it wrote; nobody ever refers to it."""
        return _UNFINISHED.fullmatch(self.key) is not None


class RawStore(Protocol):
    """Content-addressed storage for raw bytes."""

    def put(
        self, tenant: str, source: str, external_id: str, content: bytes, extension: str
    ) -> str:
        """Store the bytes and return their key; storing them again changes nothing."""

    def get(self, key: str) -> bytes: ...

    def locate(self, key: str) -> Path | None:
        """The file that holds the bytes, if they lie in one on this machine."""

    def delete(self, key: str) -> None:
        """Deleting what is not there is no error."""

    def delete_older(self, key: str, before: datetime) -> bool:
        """Delete what was last stored before then; whether it was there, and so old."""

    def list_objects(self, tenant: str, source: str) -> Iterator[StoredObject]:
        """Everything of ours that lies here for a tenant's source, in any order."""

    def check(self) -> None:
        """Raise an error of ours unless bytes can be stored here now."""


def raw_key(tenant: str, source: str, external_id: str, content: bytes, extension: str) -> str:
    """`raw/{tenant}/{source}/{external_id}/{sha256}.{extension}`, each part escaped."""
    folder = raw_folder(tenant, source) + escape_part(external_id)
    return f"{folder}/{hashlib.sha256(content).hexdigest()}.{escape_part(extension)}"


def raw_folder(tenant: str, source: str) -> str:
    """What the keys of a tenant's source begin with."""
    return f"raw/{escape_part(tenant)}/{escape_part(source)}/"


def is_ours(key: str) -> bool:
    """Whether `raw_key` makes such keys, or a store such names while it writes."""
    return bool(_KEY.fullmatch(key) or _UNFINISHED.fullmatch(key))


def escape_part(text: str) -> str:
    """One path segment for any text: never empty, hidden, `..` or too long, and never shared.

    Escaped text holds no `~`, which marks a long text whose tail was replaced by its hash.
    """
    escaped = quote(text.encode("utf-8", "surrogatepass"), safe="").replace("~", "%7E")
    if escaped.startswith("."):
        escaped = "%2E" + escaped[1:]
    if len(escaped) > _MAX_PART_BYTES:
        digest = hashlib.sha256(escaped.encode()).hexdigest()
        return f"{escaped[:_HEAD_BYTES]}~{digest}"
    return escaped or "~"


def require_raw_key(key: str) -> None:
    """Refuse what `raw_key` cannot have made: it might lie outside the store."""
    parts = key.split("/")
    if parts[0] != "raw" or any(part in {"", ".", ".."} for part in parts):
        message = f"{key!r} is not a key of the raw store"
        raise DocumentFault(ErrorClass.UNAVAILABLE, message)


class LocalRawStore:
    """A raw store in a local folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(
        self, tenant: str, source: str, external_id: str, content: bytes, extension: str
    ) -> str:
        key = raw_key(tenant, source, external_id, content, extension)
        path = self._root / key
        try:
            if not _is_whole(path, len(content)) or not _renew(path):
                _write(path, content)
        except OSError as error:
            action = f"could not store raw bytes of {external_id}"
            if error.errno in _NO_ROOM:
                raise StorageFull(
                    f"{action} ({path}): {error.strerror}. Make room there, or move the store with "
                    "PENSTOCK_RAW_FOLDER; then `penstock resume` takes the run up"
                ) from error
            raise _unavailable(action, path, error) from error
        return key

    def get(self, key: str) -> bytes:
        path = self._path(key)
        try:
            return path.read_bytes()
        except OSError as error:
            raise _unavailable("could not read raw bytes", path, error) from error

    def locate(self, key: str) -> Path | None:
        return self._path(key)

    def delete(self, key: str) -> None:
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _unavailable("could not delete raw bytes", path, error) from error
        _remove_if_empty(path.parent)

    def delete_older(self, key: str, before: datetime) -> bool:
        path = self._path(key)
        try:
            return _delete_older(path, before)
        except OSError as error:
            raise _unavailable("could not delete raw bytes", path, error) from error

    def list_objects(self, tenant: str, source: str) -> Iterator[StoredObject]:
        folder = self._root / raw_folder(tenant, source)
        try:
            for document in _folders_in(folder):
                yield from self._list_document(document)
        except OSError as error:
            raise _unavailable("could not list raw bytes", folder, error) from error

    def _list_document(self, folder: Path) -> Iterator[StoredObject]:
        for entry in _entries_of(folder):
            key = Path(entry.path).relative_to(self._root).as_posix()
            if is_ours(key) and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    yield StoredObject(key, status.st_size, _time(status))

    def check(self) -> None:
        probe = self._root / f".{uuid.uuid4().hex}.probe"
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise _unavailable("raw bytes cannot be stored", self._root, error) from error

    def _path(self, key: str) -> Path:
        require_raw_key(key)
        return self._root / key


def _is_whole(path: Path, size: int) -> bool:
    # Files are not synced one by one, so a power cut can leave an empty one under its final name.
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _renew(path: Path) -> bool:
    """Give a file that is about to be referred to the present time, unless it is young; False
    when it has just been deleted, or is not ours to change."""
    try:
        if _time(path.stat()) < datetime.now(UTC) - RENEWED_AFTER:
            os.utime(path)
    except OSError:
        return False
    return True


def _delete_older(path: Path, before: datetime) -> bool:
    """Whoever stores the same bytes in this moment either finds no file and writes one, or has
    given it a new time: so it is moved away first, and looked at once more."""
    aside = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        if _time(path.lstat()) >= before:
            return False
        path.rename(aside)
    except FileNotFoundError:
        return False
    if _time(aside.lstat()) >= before:
        aside.rename(path)
        return False
    aside.unlink()
    _remove_if_empty(path.parent)
    return True


def _time(status: os.stat_result) -> datetime:
    return datetime.fromtimestamp(status.st_mtime, UTC)


def _folders_in(folder: Path) -> list[Path]:
    return [Path(one.path) for one in _entries_of(folder) if one.is_dir(follow_symlinks=False)]


def _entries_of(folder: Path) -> list["os.DirEntry[str]"]:
    """What lies in a folder, which somebody may just have removed."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _write(path: Path, content: bytes) -> None:
    try:
        _write_in_folder(path, content)
    except FileNotFoundError:
        # New document, or another worker has just removed the empty folder.
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_in_folder(path, content)


def _write_in_folder(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            reach("raw.storing")
            file.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return


def _unavailable(action: str, path: Path, error: OSError) -> DocumentFault:
    message = f"{action} ({path}): {error.strerror or error}"
    return DocumentFault(ErrorClass.UNAVAILABLE, message)
