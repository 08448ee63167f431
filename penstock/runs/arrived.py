"""A document at the gate of a run: fetched, assessed, its raw bytes kept if they are needed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.crawl.fetch import Marks
from penstock.crawl.simhash import to_signed
from penstock.events.record import Event
from penstock.runs.assessment import Assessment
from penstock.runs.vocabulary import Change, DocumentStatus, Run
from penstock.store.database import Tx
from penstock.store.identifiers import new_node_id
from penstock.work.items import NewItem


@dataclass(frozen=True, slots=True)
class Arrived:
    """What is recorded about one listed document."""

    assessed: Assessment
    raw_key: str | None = None
    size: int = 0

    @property
    def external_id(self) -> str:
        return self.assessed.listed.external_id

    @property
    def needs_node(self) -> bool:
        return self.assessed.known is not None or self.assessed.stage is not None

    @property
    def status(self) -> DocumentStatus:
        if self.assessed.fault is not None:
            return DocumentStatus.ERROR
        return DocumentStatus.SKIPPED if self.assessed.stage is None else DocumentStatus.PENDING

    def new_node(self, tx: Tx, run: Run) -> dict[str, Any]:
        listed = self.assessed.listed
        return {
            "id": new_node_id(),
            "tenant_id": run.tenant_id,
            "source_id": run.source_id,
            "external_id": listed.external_id,
            "url": listed.url,
            "title": listed.title,
            "profile": run.profile,
            "metadata": {},
            "fields": {},
            "created_at": tx.now,
            "updated_at": tx.now,
        }

    def new_item(self, run: Run, ids: Mapping[str, str]) -> NewItem:
        stage = self.assessed.stage
        assert stage is not None, "only documents with something to do become work"
        return NewItem(
            run.tenant_id, ids[self.external_id], stage, run_id=run.id, payload=self._payload(run)
        )

    def run_document(self, tx: Tx, run: Run, ids: Mapping[str, str]) -> dict[str, Any]:
        fault = self.assessed.fault
        return {
            "run_id": run.id,
            "external_id": self.external_id,
            "node_id": ids.get(self.external_id),
            "url": self.assessed.listed.url,
            "status": self.status,
            "change": self.assessed.change,
            "reason": self.assessed.reason,
            "error_class": fault.kind if fault else None,
            "updated_at": tx.now,
        }

    def event(self, run: Run, ids: Mapping[str, str]) -> Event:
        return Event(
            run.tenant_id,
            "CRL",
            self._story(),
            level="INFO" if self.assessed.fault is None else "ERROR",
            run_id=run.id,
            node_id=ids.get(self.external_id),
            source=run.source_name,
            document=self.external_id,
        )

    def _story(self) -> str:
        assessed = self.assessed
        if assessed.fault is not None:
            return f"{assessed.fault.kind}: {assessed.reason}"
        if assessed.stage is None:
            return assessed.reason or "unchanged"
        note = f" ({assessed.reason})" if assessed.reason else ""
        if self.raw_key is None:
            return f"unchanged, to be processed again from {assessed.stage}{note}"
        made = "new" if assessed.change is Change.NEW else "changed"
        return f"{made}, {self.size} bytes stored{note}"

    def _payload(self, run: Run) -> dict[str, Any]:
        marks = self.assessed.marks or Marks()
        payload = {
            "external_id": self.external_id,
            "raw_key": self.raw_key,
            "size": self.size,
            "media_type": self.assessed.media_type,
            "content_hash": marks.content_hash,
            "simhash": None if marks.simhash is None else to_signed(marks.simhash),
            "etag": marks.etag,
            "last_modified": marks.last_modified,
            "profile": run.profile,
            "source": run.source_name,
        }
        return {name: value for name, value in payload.items() if value is not None}
