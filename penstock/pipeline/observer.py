"""Who hears what becomes of work items, each time after it is committed."""

from collections.abc import Sequence
from typing import Protocol

from penstock.documents import ExtractedText, Extraction, ExtractionSkipped
from penstock.work.items import Verdict, WorkItem

Result = ExtractedText | Extraction | ExtractionSkipped | None
"""What a stage found; embedding finds vectors, which only search can read."""


class Observer(Protocol):
    def started(self, items: Sequence[WorkItem]) -> None: ...

    def completed(self, item: WorkItem, result: Result) -> None: ...

    def failed(self, verdict: Verdict) -> None:
        """This attempt failed; `verdict.dead` says whether it was the last."""


class NoObserver:
    """Hears nothing."""

    def started(self, items: Sequence[WorkItem]) -> None:
        del items

    def completed(self, item: WorkItem, result: Result) -> None:
        del item, result

    def failed(self, verdict: Verdict) -> None:
        del verdict
