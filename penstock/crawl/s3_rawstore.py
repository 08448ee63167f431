"""A raw store in a bucket, with the same keys as the one in a folder, below a prefix."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.crawl.rawstore import (
    RENEWED_AFTER,
    StoredObject,
    is_ours,
    raw_folder,
    raw_key,
    require_raw_key,
)
from penstock.crawl.s3_listing import parse_s3_location
from penstock.crawl.s3_trouble import NO_S3_SERVER, explained, is_gone, status_of
from penstock.errors import ConfigurationError, DocumentFault, ErrorClass, UsageError

_NAMED_IN = "PENSTOCK_RAW_STORE"
# S3 answers 403 for what is not there to those who may not list.
_MAYBE_MISSING = (403, 404)


class S3RawStore:
    """Raw bytes as objects `{prefix}/raw/…`. Safe to share by threads."""

    def __init__(self, client: Any, bucket: str, prefix: str = "") -> None:
        self._client = client
        self._bucket = bucket
        folder = prefix.strip("/")
        self._prefix = f"{folder}/" if folder else ""

    def put(
        self, tenant: str, source: str, external_id: str, content: bytes, extension: str
    ) -> str:
        key = raw_key(tenant, source, external_id, content, extension)
        if not self._holds(key, len(content)):
            self._upload(key, content)
        return key

    def get(self, key: str) -> bytes:
        place = self._place(key)
        with explained("read raw bytes at", self._url(key), _NAMED_IN):
            content: bytes = self._client.get_object(**place)["Body"].read()
        return content

    def locate(self, key: str) -> Path | None:
        require_raw_key(key)
        return None

    def delete(self, key: str) -> None:
        place = self._place(key)
        with explained("delete raw bytes at", self._url(key), _NAMED_IN):
            try:
                self._client.delete_object(**place)
            except self._client.exceptions.ClientError as error:
                if not is_gone(error):
                    raise

    def delete_older(self, key: str, before: datetime) -> bool:
        """Whoever stores the same bytes anew between the question and the deletion loses them, a
        matter of milliseconds; the document then fails, and its next run stores them again."""
        head = self._head(key)
        if head is None or head["LastModified"] >= before:
            return False
        self.delete(key)
        return True

    def list_objects(self, tenant: str, source: str) -> Iterator[StoredObject]:
        folder = raw_folder(tenant, source)
        with explained("list raw bytes at", self._url(folder), _NAMED_IN):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + folder):
                yield from self._own_objects(page, folder)

    def _own_objects(self, page: dict[str, Any], folder: str) -> Iterator[StoredObject]:
        # Any web server's answer can be read as a page without objects.
        if "IsTruncated" not in page:
            message = f"could not list raw bytes at {self._url(folder)}: {NO_S3_SERVER}"
            raise DocumentFault(ErrorClass.UNAVAILABLE, message)
        for entry in page.get("Contents", ()):
            key = str(entry["Key"]).removeprefix(self._prefix)
            if is_ours(key):
                yield StoredObject(key, int(entry["Size"]), entry["LastModified"].astimezone(UTC))

    def check(self) -> None:
        with explained("use the bucket at", f"s3://{self._bucket}", _NAMED_IN):
            self._client.head_bucket(Bucket=self._bucket)

    def _holds(self, key: str, size: int) -> bool:
        """Whether it need not be stored again: it is there, whole, and not old."""
        head = self._head(key)
        if head is None or head["ContentLength"] != size:
            return False
        return bool(head["LastModified"] > datetime.now(UTC) - RENEWED_AFTER)

    def _head(self, key: str) -> dict[str, Any] | None:
        """What is known of an object; None when it is missing, or nobody tells."""
        place = self._place(key)
        with explained("look for raw bytes at", self._url(key), _NAMED_IN):
            try:
                head: dict[str, Any] = self._client.head_object(**place)
            except self._client.exceptions.ClientError as error:
                if status_of(error) in _MAYBE_MISSING:
                    return None
                raise
        return head

    def _upload(self, key: str, content: bytes) -> None:
        try:
            with explained("store raw bytes at", self._url(key), _NAMED_IN):
                self._client.put_object(**self._place(key), Body=content)
        except DocumentFault as fault:
            if fault.kind is not ErrorClass.FORBIDDEN:
                raise
            # No document is to blame: none can be stored until somebody grants it.
            raise ConfigurationError(f"{fault} ({_NAMED_IN} names this place)") from fault

    def _place(self, key: str) -> dict[str, str]:
        require_raw_key(key)
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _url(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{key}"


def open_s3_raw_store(client: Any, location: str) -> S3RawStore:
    """The store at `s3://bucket/prefix`."""
    try:
        bucket, prefix = parse_s3_location(location)
    except UsageError as error:
        raise ConfigurationError(f"{_NAMED_IN} is not usable: {error}") from error
    return S3RawStore(client, bucket, prefix)
