"""Paths and objects that a source may not read, and S3 prefixes that API callers may name."""

import os
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from penstock.crawl.s3 import SCHEME, parse_s3_location, split_object_url
from penstock.errors import DocumentFault, ErrorClass
from penstock.home import is_ours

_IN_RAW_STORE = "lies in the raw store, which holds the bytes of every tenant"


@dataclass(frozen=True, slots=True)
class OffLimits:
    """The raw store, the files of the database, and Penstock's own files in the home, which hold
    the data of every tenant and passwords. Paths are real ones, without links."""

    raw_folder: Path | None = None
    raw_prefix: tuple[str, str] | None = None
    """Bucket, and prefix of the keys."""
    database: tuple[Path, ...] = ()
    """Files, and the folder of a local Postgres."""
    home: Path | None = None
    """Files of users in it may be read."""

    def overlap_path(self, path: Path) -> bool:
        """Whether a source at this path would list raw bytes."""
        if self.raw_folder is None:
            return False
        real = real_path(path)
        if real.is_relative_to(self.raw_folder):
            return True
        # Hidden folders are not listed, so the default home may lie in a source.
        return self.raw_folder.is_relative_to(real) and not any(
            part.startswith(".") for part in self.raw_folder.relative_to(real).parts
        )

    def overlap_prefix(self, bucket: str, prefix: str) -> bool:
        """The same for an S3 prefix; also True for `..` in it, which may lead elsewhere."""
        if _is_dotted(prefix):
            return True
        raw = self._prefix_in(bucket)
        return raw is not None and any(
            one.startswith(raw) or raw.startswith(one) for one in _spellings(prefix)
        )

    def check_path(self, path: Path) -> None:
        """Refuse a file that may not be read, whatever links lead to it."""
        real = os.path.realpath(path)
        if self.raw_folder is not None and _lies_in(real, self.raw_folder):
            raise DocumentFault(ErrorClass.FORBIDDEN, f"{path} {_IN_RAW_STORE}")
        if any(_lies_in(real, one) for one in self.database):
            message = f"{path} is part of the database, which holds the texts of every tenant"
            raise DocumentFault(ErrorClass.FORBIDDEN, message)
        if self._is_ours(real):
            message = f"{path} belongs to Penstock itself, whose files hold passwords"
            raise DocumentFault(ErrorClass.FORBIDDEN, message)

    def check_object(self, url: str) -> None:
        """The same for an object in S3."""
        bucket, key = split_object_url(url)
        if _is_dotted(key):
            message = f"{url} has a part `.` or `..`, which may lead to another bucket"
            raise DocumentFault(ErrorClass.FORBIDDEN, message)
        raw = self._prefix_in(bucket)
        if raw is not None and any(one.startswith(raw) for one in _spellings(key)):
            raise DocumentFault(ErrorClass.FORBIDDEN, f"{url} {_IN_RAW_STORE}")

    def _is_ours(self, real: str) -> bool:
        if self.home is None or not _lies_in(real, self.home):
            return False
        below = Path(real).relative_to(self.home).parts
        return bool(below) and is_ours(below[0])

    def _prefix_in(self, bucket: str) -> str | None:
        """The prefix of the raw store when it is in this bucket."""
        # Some servers ignore the case of a bucket's name.
        if self.raw_prefix is None or bucket.lower() != self.raw_prefix[0].lower():
            return None
        return self.raw_prefix[1]


@dataclass(frozen=True, slots=True)
class AllowedPrefixes:
    """S3 prefixes that API callers may name; they are read with the server's credentials."""

    prefixes: tuple[tuple[str | None, str, str], ...] = ()
    """Tenant (None: all tenants), bucket and prefix."""

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """From `s3://bucket/prefix/` or `tenant=s3://bucket/prefix/`."""
        prefixes = []
        for text in texts:
            tenant, _, rest = ("", "", text) if text.startswith(SCHEME) else text.partition("=")
            prefixes.append((tenant or None, *parse_s3_location(rest)))
        return cls(tuple(prefixes))

    def allow(self, bucket: str, key: str, tenant_id: str) -> bool:
        """Whether a tenant's callers may name this key, or all keys that begin with it."""
        return not _is_dotted(key) and any(
            tenant in (None, tenant_id)
            and bucket == allowed_bucket
            and all(one.startswith(prefix) for one in _spellings(key))
            for tenant, allowed_bucket, prefix in self.prefixes
        )


def real_path(path: Path) -> Path:
    """The path with links resolved. Path.resolve() raises for a loop of links; this does not, and
    reading the file then fails."""
    return Path(os.path.realpath(path))


def _lies_in(real: str, place: Path) -> bool:
    """As `Path.is_relative_to`, which takes as long as reading a small file."""
    base = str(place)
    return real == base or real.startswith(base if base.endswith(os.sep) else base + os.sep)


def _is_dotted(key: str) -> bool:
    """Whether a server that treats keys as paths could leave the bucket or a folder in it:
    `s3://a/../b/` is bucket `b` there."""
    return not {".", ".."}.isdisjoint(key.split("/"))


def _spellings(key: str) -> set[str]:
    """The key, and the key as a server that treats keys as paths reads it: `a/b` and `a//b` are
    the same there."""
    folder = "/" if key.endswith("/") else ""
    path = posixpath.normpath(f"/{key}").lstrip("/")
    return {key, path + folder if path else ""}
