"""Canaries: what new settings, a new prompt or a new model would make of a sample of documents.

The answers are kept like all others, and the nodes stay as they are. So to promote a canary is to
run the backfill, which finds these answers and asks for the rest; to discard it is to delete them.
"""

import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from penstock.backfill.backfill import (
    Backfill,
    BackfillStatus,
    decide_first,
    read_backfill,
    record_backfill,
    undecided_canaries,
)
from penstock.backfill.canary_report import READY, CanaryReport, report_canary
from penstock.backfill.estimate import estimate
from penstock.backfill.selection import Selection, choose_nodes, find_candidates
from penstock.documents import Extraction, ExtractionRequest, Fault, Stage, hash_text
from penstock.errors import Interrupted, NotFound, StoreError, UsageError
from penstock.failpoints import hit
from penstock.llm.profiles import profile_named
from penstock.pipeline.extract import WantedNode, answer_ahead
from penstock.pipeline.steps import ExtractionResult
from penstock.review.corrections import Correction, holding, read_corrections
from penstock.store.database import Database, Tx
from penstock.store.retry import retry_while_unavailable
from penstock.store.schema import (
    backfills,
    canary_documents,
    extractions,
    nodes,
)

if TYPE_CHECKING:
    from penstock.app import App
    from penstock.pipeline.processor import Processor
    from penstock.pipeline.steps import Steps

_POLL_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 30.0
_c = canary_documents.c
_TO_DO = _c.outcome.is_(None)


def open_canary(app: "App", selection: Selection, size: int) -> Backfill:
    """Choose the sample, spread evenly over the documents that would be extracted again; or take up
    the undecided canary of the same selection where it stopped."""
    found = estimate(app, selection)
    with app.database.write() as tx:
        for one in undecided_canaries(tx, selection.tenant_id):
            if one.selection.key == selection.key:
                return one
            raise UsageError(decide_first(one.id))
        sample = _choose_sample(tx, selection, size)
        if not sample:
            raise NotFound(
                "no document would be extracted again: change EXTRACTION_VERSION, a profile or the "
                "models first, and name the reason (`--reason extractor` for other models)"
            )
        facts = {
            "documents": len(sample),
            "extractions": found.extractions,
            "extractor": app.extractor.identity,
            "cost_usd": found.cost.usd,
            "cost_basis": found.cost.basis,
        }
        canary_id = record_backfill(tx, selection, BackfillStatus.CANARY, canary=facts)
        assert canary_id is not None, "there is none with this selection"
        rows = [{"backfill_id": canary_id, "seq": seq} for seq in sample]
        tx.execute(sa.insert(canary_documents), rows)
        return read_backfill(tx, canary_id)


def _choose_sample(tx: Tx, selection: Selection, size: int) -> list[int]:
    candidates = find_candidates(selection, tx.now, after=0).subquery()
    of_extraction = sa.select(candidates.c.seq).where(
        candidates.c.stage == Stage.EXTRACT, candidates.c.has_text
    )
    numbers = tx.execute(of_extraction.order_by(candidates.c.seq)).scalars().all()
    size = min(size, len(numbers))
    return [numbers[place * len(numbers) // size] for place in range(size)]


@dataclass(slots=True)
class CanaryWork:
    """Extracts the sample of a canary. Several processes may work for the same one; what a process
    that was killed had claimed is free again when its lease has run out."""

    database: Database
    processor: "Processor"
    canary_id: int
    batch_size: int
    lease_seconds: float
    max_attempts: int
    _stopped: threading.Event = field(default_factory=threading.Event)
    _failures: Counter[int] = field(default_factory=Counter)

    def stop(self) -> None:
        """Stop after the documents that are under way."""
        self._stopped.set()

    def run(self) -> Iterator[tuple[int, int]]:
        """Work until every document of the sample is done; how many are, and how many there are."""
        while True:
            done, total = self._count()
            yield done, total
            if done == total:
                return
            wait = self._work_once()
            if (wait and self._stopped.wait(wait)) or self._stopped.is_set():
                raise Interrupted(f"canary {self.canary_id} was stopped")

    def _work_once(self) -> float:
        """Extract one batch; how long to wait before the next."""
        token = uuid.uuid4().hex
        rows = self._claim(token)
        if not rows:
            return _POLL_SECONDS  # another process works on them, or has died lately
        try:
            return self._extract(token, rows)
        except BaseException:
            # Otherwise their lease runs out.
            with suppress(StoreError):
                self._give_back(token)
            raise

    def _extract(self, token: str, rows: Sequence[sa.Row[Any]]) -> float:
        wanted = [WantedNode(row.tenant_id, row.id) for row in rows]
        answers = answer_ahead(self.processor.context, wanted, self.processor.models)
        hit("canary.answered")
        waits = [
            self._wait_for(row.seq, answer) for row, (_, answer) in zip(rows, answers, strict=True)
        ]
        self._record(token, rows, answers, waits)
        return min(max((one for one in waits if one), default=0.0), _LONGEST_WAIT_SECONDS)

    @retry_while_unavailable
    def _count(self) -> tuple[int, int]:
        with self.database.read() as tx:
            return count_done(tx, self.canary_id)

    @retry_while_unavailable
    def _claim(self, token: str) -> Sequence[sa.Row[Any]]:
        with self.database.write() as tx:
            _check_undecided(read_backfill(tx, self.canary_id))
            free = sa.or_(_c.lease_expires_at.is_(None), _c.lease_expires_at <= tx.now)
            chosen = (
                sa.select(_c.seq, nodes.c.id, nodes.c.tenant_id, nodes.c.fields)
                .add_columns(nodes.c.extraction_confidence)
                .join(nodes, nodes.c.seq == _c.seq)
                .where(_c.backfill_id == self.canary_id, _TO_DO, free)
                .order_by(_c.seq)
                .limit(self.batch_size)
                .with_for_update(skip_locked=True, of=canary_documents)
            )
            rows = tx.execute(chosen).all()
            until = tx.now + timedelta(seconds=self.lease_seconds)
            taken = {"lease_token": token, "lease_expires_at": until}
            tx.execute(self._among(tx, rows).values(taken))
        return rows

    def _give_back(self, token: str) -> None:
        with self.database.write() as tx:
            mine = sa.update(canary_documents).where(_c.lease_token == token)
            tx.execute(mine.values(lease_token=None, lease_expires_at=None))

    def _among(self, tx: Tx, rows: Sequence[sa.Row[Any]]) -> sa.Update:
        own = tx.among(_c.seq, [row.seq for row in rows])
        return sa.update(canary_documents).where(_c.backfill_id == self.canary_id, own)

    def _wait_for(self, seq: int, answer: ExtractionResult) -> float | None:
        """How long to wait before this document is tried again; None: its answer counts."""
        if not isinstance(answer, Fault) or answer.kind.permanent:
            return None
        if not answer.is_free:
            self._failures[seq] += 1
            if self._failures[seq] >= self.max_attempts:
                return None
        return answer.retry_after_seconds or _POLL_SECONDS

    @retry_while_unavailable
    def _record(
        self,
        token: str,
        rows: Sequence[sa.Row[Any]],
        answers: Sequence[tuple[Any, ExtractionResult]],
        waits: Sequence[float | None],
    ) -> None:
        with self.database.write() as tx:
            made = read_corrections(tx, [row.id for row in rows])
            for row, (request, answer), wait in zip(rows, answers, waits, strict=True):
                values = {"lease_token": None, "lease_expires_at": None}
                if wait is None:
                    values |= _result(row, request, answer, made[row.id])
                own = sa.and_(_c.seq == row.seq, _c.lease_token == token)
                mine = sa.update(canary_documents).where(_c.backfill_id == self.canary_id, own)
                tx.execute(mine.values(values))


def _result(
    row: sa.Row[Any],
    request: ExtractionRequest,
    answer: ExtractionResult,
    made: Sequence[Correction],
) -> dict[str, Any]:
    """What is kept of one document. Its record shows corrections, before and after; whether the
    extraction got better shows in what was extracted."""
    text_hash = hash_text(request.text) if made else ""
    of_text = [one for one in made if (one.profile, one.text_hash) == (request.profile, text_hash)]
    held = holding(of_text, profile_named(request.profile), text_hash) if of_text else {}
    labels = {name: one.value for name, one in held.items()}
    first = {one.field: one.before for one in reversed(of_text) if one.field in labels}
    old = {"fields": row.fields, "extracted": {**row.fields, **first}, "labels": labels}
    values: dict[str, Any] = {
        "cache_key": request.key,
        "profile": request.profile,
        "old": old | {"confidence": row.extraction_confidence},
    }
    if isinstance(answer, Extraction):
        fields = dict(answer.fields)
        found = {"fields": fields | labels, "extracted": fields, "confidence": answer.confidence}
        return values | {"outcome": READY, "new": found}
    why = f"failed: {answer.message}" if isinstance(answer, Fault) else f"skipped: {answer.reason}"
    return values | {"outcome": why}


def canary_work(app: "App", canary_id: int, steps: "Steps | None" = None) -> CanaryWork:
    """What extracts the sample of this canary."""
    return CanaryWork(
        app.database,
        app.processor(steps),
        canary_id,
        app.claim_size,
        app.settings.lease_seconds,
        app.settings.extraction.max_attempts,
    )


def count_done(tx: Tx, canary_id: int) -> tuple[int, int]:
    """Documents of the sample that are done, and all of them."""
    done = sa.func.count(_c.outcome)
    counted = sa.select(done, sa.func.count()).where(_c.backfill_id == canary_id)
    row = tx.execute(counted).one()
    return int(row[0]), int(row[1])


def _check_undecided(canary: Backfill) -> None:
    if canary.status is not BackfillStatus.CANARY:
        raise UsageError(f"backfill {canary.id} is {canary.status}, not an undecided canary")


def promote_canary(app: "App", canary_id: int, tenant_id: str | None = None) -> Backfill:
    """Let the backfill go on with all documents: call `open_backfill` with its selection next.

    UsageError when the canary is not complete, or when the settings are not those it was made with.
    A canary that is promoted already is returned as it is.
    """
    with app.database.write() as tx:
        canary = read_backfill(tx, canary_id, tenant_id)
        if canary.status is BackfillStatus.PROMOTED:
            return canary
        _check_undecided(canary)
        report = report_canary(tx, canary)
        if not report.is_complete:
            raise UsageError(
                f"canary {canary_id} has done {report.done} of {report.total} documents: run "
                "the same `penstock backfill --canary` again, then promote it"
            )
        _check_settings(app, canary)
        _decide(tx, canary, BackfillStatus.PROMOTED, report)
        return read_backfill(tx, canary_id)


def _check_settings(app: "App", canary: Backfill) -> None:
    chosen, facts = canary.selection, canary.canary or {}
    now = choose_nodes(app, chosen.tenant_id, all_tenants=chosen.tenant_id is None).target
    made = (facts["extractor"], chosen.target.extraction_version, chosen.target.profile_hashes)
    if made != (app.extractor.identity, now.extraction_version, now.profile_hashes):
        raise UsageError(
            f"canary {canary.id} was made with {facts['extractor']}, version "
            f"{chosen.target.extraction_version} and the profiles of then; now it is "
            f"{app.extractor.identity}, version {now.extraction_version}: promote it with the same "
            "settings and profiles, or discard it"
        )


def discard_canary(database: Database, canary_id: int, tenant_id: str | None = None) -> Backfill:
    """Forget its answers; no node was changed."""
    with database.write() as tx:
        canary = read_backfill(tx, canary_id, tenant_id)
        _check_undecided(canary)
        report = report_canary(tx, canary)
        own = (
            sa.select(_c.cache_key)
            .join(nodes, nodes.c.seq == _c.seq)
            .where(_c.backfill_id == canary_id, nodes.c.id == extractions.c.node_id)
        )
        made = sa.and_(
            extractions.c.cache_key.in_(own), extractions.c.extracted_at >= canary.created_at
        )
        tx.execute(sa.delete(extractions).where(made))
        _decide(tx, canary, BackfillStatus.DISCARDED, report)
        return read_backfill(tx, canary_id)


def _decide(tx: Tx, canary: Backfill, status: BackfillStatus, report: CanaryReport) -> None:
    """End it: its figures stay, what it holds of documents goes."""
    facts = {**(canary.canary or {}), "report": report.figures()}
    ended = {"status": status, "canary": facts, "updated_at": tx.now, "finished_at": tx.now}
    tx.execute(sa.update(backfills).where(backfills.c.id == canary.id).values(ended))
    tx.execute(sa.delete(canary_documents).where(_c.backfill_id == canary.id))
