"""Payloads that a node only names are fetched, and kept, before they are read."""

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.crawl.extension import extension_for
from penstock.crawl.payload import PayloadReader
from penstock.crawl.rawstore import PAYLOADS, RawStore
from penstock.documents import Fault
from penstock.errors import DocumentFault
from penstock.work.items import WorkItem

REFERENCE = "payload_ref"

Brought = tuple[list[WorkItem], list[tuple[WorkItem, Fault]]]


class Payloads(Protocol):
    """Sees to it that the bytes of items are there to be read."""

    def bring(self, items: Sequence[WorkItem]) -> Brought:
        """The items whose bytes are there, and those whose bytes could not be had."""


class NoPayloads:
    """For workers whose items name no payloads."""

    def bring(self, items: Sequence[WorkItem]) -> Brought:
        return [*items], []


@dataclass(frozen=True, slots=True)
class StoredPayloads:
    """Fetches what is named, several at a time, and keeps it in the raw store."""

    reader: Callable[[], PayloadReader]
    raw: Callable[[], RawStore]
    threads: Callable[[], Executor]
    """Each built when the first payload is named: most workers never meet one."""

    def bring(self, items: Sequence[WorkItem]) -> Brought:
        named = [item for item in items if REFERENCE in item.payload]
        if not named:
            return [*items], []
        stored = self.threads().map(self._store, named)
        got = {item.id: one for item, one in zip(named, stored, strict=True)}
        results = [(item, got.get(item.id, item)) for item in items]
        there = [result for _, result in results if isinstance(result, WorkItem)]
        return there, [(item, fault) for item, fault in results if isinstance(fault, Fault)]

    def _store(self, item: WorkItem) -> WorkItem | Fault:
        reference = str(item.payload[REFERENCE])
        try:
            got = self.reader().read(reference)
            extension = extension_for(reference, got.media_type)
            key = self.raw().put(item.tenant_id, PAYLOADS, item.node_id, got.content, extension)
        except DocumentFault as error:
            return Fault.of(error)
        stored = {
            "raw_key": key,
            "size": len(got.content),
            "media_type": got.media_type,
            "content_hash": hashlib.sha256(got.content).hexdigest(),
        }
        return replace(item, payload={**item.payload, **stored})
