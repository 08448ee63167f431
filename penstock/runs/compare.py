"""Compares fetched bytes with the last version of their document, and stores them if they changed.

The files of a folder are read, compared and stored in child processes, many at a time: hashing and
parsing them takes longer than all that the process of a run does with them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.crawl.access import OffLimits
from penstock.crawl.fetch import Fetched, Marks, fetch_file
from penstock.crawl.files import extension_for
from penstock.crawl.listing import Listed
from penstock.crawl.rawstore import RawStore
from penstock.crawl.simhash import distance, simhash, visible_text
from penstock.documents import Fault, RawDocument
from penstock.errors import DocumentFault
from penstock.isolation.pool import ChildPool, ChildTask
from penstock.text.media_types import HTML, detect_media_type

SAME_DISTANCE = 3
SAME_BYTES = "same bytes"

LocalFile: TypeAlias = tuple[Listed, Marks | None]
"""A file, and the marks of its last version if they count."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What was fetched, beside the last version of its document."""

    marks: Marks
    """Of what was fetched; the fingerprint only of what is not the same to the byte."""
    size: int = 0
    media_type: str | None = None
    same: str | None = None
    """In which way it is the same as the last version; None when it is new or changed."""
    raw_key: str | None = None
    """Where its bytes are stored, if it is new or changed."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares documents of one source."""

    raw: RawStore
    tenant_id: str
    source: str
    off_limits: OffLimits
    max_bytes: int

    def compare(self, listed: Listed, got: Fetched, old: Marks | None) -> Compared:
        """`old`: the marks of the last version, if it counts. DocumentFault when new bytes cannot
        be stored."""
        digest = hashlib.sha256(got.content).hexdigest()
        marks = Marks(got.etag, got.last_modified, digest)
        if old is not None and old.content_hash == digest:
            return Compared(marks, same=SAME_BYTES)
        marks = Marks(got.etag, got.last_modified, digest, _fingerprint(listed, got))
        if old is not None and (same := find_sameness(old, marks)):
            return Compared(marks, same=same)
        name = listed.path.name if listed.path else listed.url
        extension = extension_for(name, got.media_type)
        key = self.raw.put(
            self.tenant_id, self.source, listed.external_id, got.content, extension, digest
        )
        return Compared(marks, len(got.content), got.media_type, raw_key=key)

    def compare_files(
        self, files: Sequence[LocalFile], children: ChildPool | None = None
    ) -> list[Compared | Fault]:
        """Read and compare local files, in child processes if there are any."""
        if children is None:
            return [self._compare_or_fault(file) for file in files]
        task: ChildTask[LocalFile, Compared] = ChildTask(
            function=f"{__name__}:compare_file",
            doing="reading it",
            name_of=lambda file: file[0].external_id,
            size_of=lambda _: 0,
            together=64,
            options={"comparison": self},
        )
        return children.map(task, files)

    def _compare_or_fault(self, file: LocalFile) -> Compared | Fault:
        try:
            return compare_file(file, comparison=self)
        except DocumentFault as error:
            return Fault.of(error)


def compare_file(file: LocalFile, *, comparison: Comparison) -> Compared:
    """Read and compare one local file; DocumentFault also when it cannot or may not be read."""
    listed, old = file
    got = fetch_file(listed, comparison.off_limits, comparison.max_bytes)
    return comparison.compare(listed, got, old)


def _fingerprint(listed: Listed, got: Fetched) -> int | None:
    raw = RawDocument(listed.external_id, got.content, got.media_type)
    return simhash(visible_text(got.content)) if detect_media_type(raw) == HTML else None


def find_sameness(old: Marks, new: Marks) -> str | None:
    """In which way two versions are the same; None when they differ."""
    if old.content_hash and old.content_hash == new.content_hash:
        return SAME_BYTES
    if not old.simhash or not new.simhash:
        return None
    bits = distance(old.simhash, new.simhash)
    return f"same text but for {bits} of 64 bits" if bits <= SAME_DISTANCE else None
