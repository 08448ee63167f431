"""A bucket as a source: every object whose key begins with a prefix."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.crawl.listing import Listed
from penstock.crawl.s3_trouble import NO_S3_SERVER, listing_explained
from penstock.errors import ListingFailed, UsageError

SCHEME = "s3://"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
# Postgres stores no NUL. What would read as its escape gets one `25` more, so keys never collide.
_LOOKS_ESCAPED = re.compile("%(?=(?:25)*00)")
_ESCAPED = re.compile("%25(?=(?:25)*00)")


@dataclass(frozen=True, slots=True)
class S3Listing:
    """The objects below `s3://bucket/prefix`, in S3's own order.

    As everywhere in S3, `…/cvs` is the beginning of a key and also finds `cvs-2024/a.pdf`, while
    `…/cvs/` finds only what is in that folder.
    """

    location: str
    client: Any = field(repr=False)
    kind: str = field(default="s3", init=False)

    def __post_init__(self) -> None:
        bucket, prefix = parse_s3_location(self.location)
        object.__setattr__(self, "location", f"{SCHEME}{bucket}/{prefix}")

    @property
    def name(self) -> str:
        return self.location

    def list(self) -> Iterator[Listed]:
        bucket, prefix = parse_s3_location(self.location)
        folder_length = prefix.rfind("/") + 1
        for page in self._pages(bucket, prefix):
            for entry in page.get("Contents", ()):
                key = str(entry["Key"])
                if not (key.endswith("/") and entry["Size"] == 0):
                    yield Listed(_escape_key(key[folder_length:]), object_url(bucket, key))

    def _pages(self, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
        with listing_explained(self.location):
            pages = self.client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=bucket, Prefix=prefix):
                # Any web server's answer can be read as a page without objects.
                if "IsTruncated" not in page:
                    raise ListingFailed(f"could not list {self.location}: {NO_S3_SERVER}")
                yield page


def is_s3_location(text: str) -> bool:
    """Whether somebody meant a place in S3."""
    return text[: len(SCHEME)].lower() == SCHEME


def parse_s3_location(text: str) -> tuple[str, str]:
    """Bucket and prefix of `s3://bucket/prefix`; a prefix is taken as it stands."""
    bucket, _, prefix = text[len(SCHEME) :].partition("/")
    if not is_s3_location(text) or not _BUCKET.fullmatch(bucket):
        # The text is not repeated: people write their keys where the bucket should be.
        raise UsageError(
            "a place in S3 is written s3://bucket/prefix, with letters, digits, dots and hyphens in"
            " the bucket's name; keys and servers are set by PENSTOCK_S3_ACCESS_KEY_ID, "
            "PENSTOCK_S3_SECRET_ACCESS_KEY and PENSTOCK_S3_ENDPOINT_URL"
        )
    try:
        prefix.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the prefix of {SCHEME}{bucket}/… is not UTF-8; keys are") from error
    return bucket, prefix


def object_url(bucket: str, key: str) -> str:
    """The key as it stands, because it may hold any character and escapes of its own."""
    return f"{SCHEME}{bucket}/{_escape_key(key)}"


def split_object_url(url: str) -> tuple[str, str]:
    """Bucket and key of what `object_url` made."""
    bucket, _, escaped = url.removeprefix(SCHEME).partition("/")
    return bucket, _ESCAPED.sub("%", re.sub("%00", "\x00", escaped))


def _escape_key(key: str) -> str:
    return _LOOKS_ESCAPED.sub("%25", key).replace("\x00", "%00")
