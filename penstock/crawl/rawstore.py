"""Raw bytes of documents, in a folder or a bucket.

Keys name tenant, source, document and content, so the same bytes are stored once.
"""

import errno
import hashlib
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from penstock.crawl.s3 import is_gone, list_bucket, parse_s3_location, s3_errors, status_of
from penstock.errors import ConfigurationError, DocumentFault, ErrorClass, StorageFull, UsageError
from penstock.failpoints import hit
from penstock.home import check_disk, make_home, make_private_folder

RAW = "raw"
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
_MAX_PART_BYTES = 200
_HEAD_BYTES = _MAX_PART_BYTES - 65
_PART = r"(?!\.)[A-Za-z0-9_.~%-]{1,200}"
_KEY = re.compile(rf"{RAW}/{_PART}/{_PART}/{_PART}/[0-9a-f]{{64}}\.{_PART}")
_UNFINISHED = re.compile(rf"{RAW}/{_PART}/{_PART}/{_PART}/\.[0-9a-f]{{32}}\.tmp")
# In the place of a source's name, for uploads and payloads, which have no source.
UPLOADS = "uploads"
PAYLOADS = "nodes"
# Objects in S3 that are stored again get a new time when theirs is older than this: a row is about
# to refer to them, and retention deletes old objects that no row refers to.
RENEWED_AFTER = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in a raw store."""

    key: str
    size: int
    stored_at: datetime

    @property
    def is_unfinished(self) -> bool:
        """A temporary file of a process that died while writing; no row refers to it."""
        return _UNFINISHED.fullmatch(self.key) is not None


class RawStore(Protocol):
    """Content-addressed storage for raw bytes."""

    def put(
        self,
        tenant: str,
        source: str,
        external_id: str,
        content: bytes,
        extension: str,
        digest: str | None = None,
    ) -> str:
        """Store the bytes and return their key; storing them again changes nothing. `digest` is
        their SHA-256, for a caller that knows it."""

    def get(self, key: str) -> bytes: ...

    def locate(self, key: str) -> Path | None:
        """The local file that holds the bytes; None when they are not in one."""

    def delete(self, key: str) -> None:
        """Delete the bytes; it is no error when they are missing."""

    def delete_older(self, key: str, before: datetime) -> bool:
        """Delete the bytes if they were last stored before then; returns whether it did."""

    def list_objects(self, tenant: str, source: str) -> Iterator[StoredObject]:
        """All raw objects of a tenant's source, in any order."""

    def versions(self, key: str) -> list[StoredObject]:
        """All objects of the document that this key belongs to."""

    def check(self) -> None:
        """Raise an error of ours unless bytes can be stored now."""


def raw_key(tenant: str, source: str, external_id: str, digest: str, extension: str) -> str:
    """`raw/{tenant}/{source}/{external_id}/{sha256}.{extension}`, each part escaped."""
    folder = raw_folder(tenant, source) + escape_part(external_id)
    return f"{folder}/{digest}.{escape_part(extension)}"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@lru_cache
def raw_folder(tenant: str, source: str) -> str:
    """The prefix of the keys of a tenant's source."""
    return f"{RAW}/{escape_part(tenant)}/{escape_part(source)}/"


def is_ours(key: str) -> bool:
    """Whether the key has the form of a raw key, or of a store's temporary file."""
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
    """Refuse keys that `raw_key` cannot have made: they could lead out of the store."""
    parts = key.split("/")
    if parts[0] != RAW or any(part in {"", ".", ".."} for part in parts):
        message = f"{key!r} is not a key of the raw store"
        raise DocumentFault(ErrorClass.UNAVAILABLE, message)


class LocalRawStore:
    """A raw store in a local folder; in a `private` one, such as the home, no other account of the
    machine can read it."""

    def __init__(self, root: Path, *, private: bool = False) -> None:
        self._root = root
        self._private = private

    def put(
        self,
        tenant: str,
        source: str,
        external_id: str,
        content: bytes,
        extension: str,
        digest: str | None = None,
    ) -> str:
        key = raw_key(tenant, source, external_id, digest or _sha256(content), extension)
        path = f"{self._root}/{key}"
        action = f"could not store raw bytes of {external_id}"
        with _os_errors(action, path):
            try:
                if not _renew(path, len(content)):
                    self._write(path, content)
            except OSError as error:
                if error.errno not in _NO_SPACE:
                    raise
                raise StorageFull(
                    f"{action} ({path}): {error.strerror}. Free disk space, or move the store with "
                    "PENSTOCK_RAW_FOLDER; then continue the run with `penstock resume`"
                ) from error
        return key

    def get(self, key: str) -> bytes:
        path = self._path(key)
        with _os_errors("could not read raw bytes", path):
            return path.read_bytes()

    def locate(self, key: str) -> Path | None:
        return self._path(key)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with _os_errors("could not delete raw bytes", path):
            path.unlink(missing_ok=True)
        _remove_if_empty(path.parent)

    def delete_older(self, key: str, before: datetime) -> bool:
        """Another process may store the same bytes now: it finds no file and writes one, or gives
        the file a new time. So the file is moved aside first, and its time is checked again."""
        path = self._path(key)
        aside = path.with_name(f".{uuid.uuid4().hex}.tmp")
        with _os_errors("could not delete raw bytes", path):
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

    def list_objects(self, tenant: str, source: str) -> Iterator[StoredObject]:
        folder = self._root / raw_folder(tenant, source)
        with _os_errors("could not list raw bytes", folder):
            for entry in _entries_of(folder):
                if entry.is_dir(follow_symlinks=False):
                    yield from self._list_document(Path(entry.path))

    def versions(self, key: str) -> list[StoredObject]:
        folder = self._path(key).parent
        with _os_errors("could not list raw bytes", folder):
            return [*self._list_document(folder)]

    def _list_document(self, folder: Path) -> Iterator[StoredObject]:
        for entry in _entries_of(folder):
            key = Path(entry.path).relative_to(self._root).as_posix()
            if is_ours(key) and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    yield StoredObject(key, status.st_size, _time(status))

    def check(self) -> None:
        with _os_errors("raw bytes cannot be stored", self._root):
            if self._private:
                make_home(self._root)
            self._root.mkdir(parents=True, exist_ok=True)
            check_disk(self._root)

    def _path(self, key: str) -> Path:
        require_raw_key(key)
        return self._root / key

    def _write(self, path: str, content: bytes) -> None:
        folder = path.rpartition("/")[0]
        try:
            self._make_folder(folder)
            _write_in_folder(folder, path, content)
        except FileNotFoundError:
            # Another worker has just removed the empty folder.
            self._make_folder(folder)
            _write_in_folder(folder, path, content)

    def _make_folder(self, folder: str) -> None:
        try:
            os.mkdir(folder)
        except FileExistsError:
            return
        except FileNotFoundError:
            # The first document of its source.
            if self._private:
                make_private_folder(self._root / RAW)
            Path(folder).mkdir(parents=True, exist_ok=True)


def _renew(path: str, size: int) -> bool:
    """Give a file the present time; False when it has to be written (again): it is missing, has
    another size, or may not be changed."""
    try:
        status = os.stat(path)
        # Files are not synced one by one, so a power cut can leave an empty one.
        if status.st_size != size:
            return False
        os.utime(path)
    except OSError:
        return False
    return True


def _time(status: os.stat_result) -> datetime:
    return datetime.fromtimestamp(status.st_mtime, UTC)


def _entries_of(folder: Path) -> list["os.DirEntry[str]"]:
    """The entries of a folder; none when another process has just removed it."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _write_in_folder(folder: str, path: str, content: bytes) -> None:
    temporary = f"{folder}/.{os.urandom(16).hex()}.tmp"
    try:
        with open(temporary, "xb") as file:
            hit("raw.storing")
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def _os_errors(action: str, path: Path | str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"{action} ({path}): {error.strerror or error}"
        raise DocumentFault(ErrorClass.UNAVAILABLE, message) from error


_SETTING = "PENSTOCK_RAW_STORE"
# S3 answers 403 for a missing object when the account may not list the bucket.
_MAYBE_MISSING = (403, 404)


class S3RawStore:
    """Raw bytes as objects `{prefix}/raw/…`. Safe to share by threads."""

    def __init__(self, client: Any, bucket: str, prefix: str = "") -> None:
        self._client = client
        self._bucket = bucket
        folder = prefix.strip("/")
        self._prefix = f"{folder}/" if folder else ""

    def put(
        self,
        tenant: str,
        source: str,
        external_id: str,
        content: bytes,
        extension: str,
        digest: str | None = None,
    ) -> str:
        key = raw_key(tenant, source, external_id, digest or _sha256(content), extension)
        head = self._head(key)
        whole = head is not None and head["ContentLength"] == len(content)
        if head is None or not whole or head["LastModified"] <= datetime.now(UTC) - RENEWED_AFTER:
            self._upload(key, content)
        return key

    def get(self, key: str) -> bytes:
        place = self._place(key)
        with s3_errors("read raw bytes at", self._url(key), _SETTING):
            content: bytes = self._client.get_object(**place)["Body"].read()
        return content

    def locate(self, key: str) -> Path | None:
        require_raw_key(key)
        return None

    def delete(self, key: str) -> None:
        place = self._place(key)
        with s3_errors("delete raw bytes at", self._url(key), _SETTING):
            try:
                self._client.delete_object(**place)
            except self._client.exceptions.ClientError as error:
                if not is_gone(error):
                    raise

    def delete_older(self, key: str, before: datetime) -> bool:
        """Bytes that another process stores between the check and the deletion are lost, within
        milliseconds; the document then fails, and its next run stores them again."""
        head = self._head(key)
        if head is None or head["LastModified"] >= before:
            return False
        self.delete(key)
        return True

    def list_objects(self, tenant: str, source: str) -> Iterator[StoredObject]:
        return self._list(raw_folder(tenant, source))

    def versions(self, key: str) -> list[StoredObject]:
        require_raw_key(key)
        return [*self._list(f"{key.rpartition('/')[0]}/")]

    def _list(self, folder: str) -> Iterator[StoredObject]:
        prefix = self._prefix + folder
        for entry in list_bucket(self._client, self._bucket, prefix, "list raw bytes at", _SETTING):
            key = str(entry["Key"]).removeprefix(self._prefix)
            if is_ours(key):
                stored_at = entry["LastModified"].astimezone(UTC)
                yield StoredObject(key, int(entry["Size"]), stored_at)

    def check(self) -> None:
        with s3_errors("use the bucket at", f"s3://{self._bucket}", _SETTING):
            self._client.head_bucket(Bucket=self._bucket)

    def _head(self, key: str) -> dict[str, Any] | None:
        """The object's metadata; None when it is missing or may not be read."""
        place = self._place(key)
        with s3_errors("look for raw bytes at", self._url(key), _SETTING):
            try:
                head: dict[str, Any] = self._client.head_object(**place)
            except self._client.exceptions.ClientError as error:
                if status_of(error) in _MAYBE_MISSING:
                    return None
                raise
        return head

    def _upload(self, key: str, content: bytes) -> None:
        try:
            with s3_errors("store raw bytes at", self._url(key), _SETTING):
                self._client.put_object(**self._place(key), Body=content)
        except DocumentFault as fault:
            if fault.kind is not ErrorClass.FORBIDDEN:
                raise
            # Not the fault of this document: none can be stored until access is granted.
            raise ConfigurationError(f"{fault} (set by {_SETTING})") from fault

    def _place(self, key: str) -> dict[str, str]:
        require_raw_key(key)
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _url(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{key}"


def open_s3_raw_store(client: Any, location: str) -> S3RawStore:
    """The store at `s3://bucket/prefix`."""
    return S3RawStore(client, *_parse(location))


def raw_prefix(location: str) -> tuple[str, str]:
    """The bucket of such a store and the prefix of its keys, for access checks."""
    bucket, prefix = _parse(location)
    return bucket, f"{prefix.strip('/') or RAW}/"


def _parse(location: str) -> tuple[str, str]:
    try:
        return parse_s3_location(location)
    except UsageError as error:
        raise ConfigurationError(f"{_SETTING} is not valid: {error}") from error
