"""Raw bytes of documents, kept under keys that name tenant, source, document and content."""

import errno
import hashlib
import uuid
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from penstock.errors import DocumentFault, ErrorClass, StorageFull
from penstock.faults import reach

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_MAX_PART_BYTES = 200
_HEAD_BYTES = _MAX_PART_BYTES - 65


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

    def check(self) -> None:
        """Raise an error of ours unless bytes can be stored here now."""


def raw_key(tenant: str, source: str, external_id: str, content: bytes, extension: str) -> str:
    """`raw/{tenant}/{source}/{external_id}/{sha256}.{extension}`, each part escaped."""
    parts = "/".join(map(escape_part, (tenant, source, external_id)))
    return f"raw/{parts}/{hashlib.sha256(content).hexdigest()}.{escape_part(extension)}"


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
            if not _is_whole(path, len(content)):
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
