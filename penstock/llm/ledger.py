"""Where calls are written down as they are made, and answers as they come."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from penstock.documents import Extraction, ExtractionRequest, ModelCall


class Ledger(Protocol):
    """Money that was spent stays spent, and an answer that was paid for stays known, however the
    batch ends."""

    def spending(
        self, request: ExtractionRequest, about_usd: float
    ) -> AbstractContextManager[None]:
        """Around a call that will cost about so much. Instead of entering it raises BudgetSpent
        when this document's run, with its calls under way, may cost no more, and NotWanted when
        that run has ended."""

    def record(self, request: ExtractionRequest, call: ModelCall) -> None: ...

    def keep(self, request: ExtractionRequest, answer: Extraction) -> None: ...


class NoLedger:
    """Writes nothing down."""

    def spending(
        self, request: ExtractionRequest, about_usd: float
    ) -> AbstractContextManager[None]:
        del request, about_usd
        return nullcontext()

    def record(self, request: ExtractionRequest, call: ModelCall) -> None:
        del request, call

    def keep(self, request: ExtractionRequest, answer: Extraction) -> None:
        del request, answer
