"""The queue of one library, job by job: for the worker, and for programs that work by hand."""

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.operations.jobs import RETRIED
from penstock.pipeline.closing import LAST_STAGE, bury, close_ended, close_failed
from penstock.pipeline.telling import tell_failures
from penstock.recovery import sweep
from penstock.store.database import Tx
from penstock.store.schema import WAITING_ITEM, nodes, work_items, workers
from penstock.work.due import NO_RUN
from penstock.work.items import (
    ACTIVE_STATUSES,
    Claim,
    ItemStatus,
    NewItem,
    Outcome,
    WorkItem,
)
from penstock.work.queue import WorkQueue
from penstock.work.retry import RetryRule, Steps
from penstock.worker.attachments import Attachment, find_attachments
from penstock.worker.database import Database
from penstock.worker.jobs import (
    ATTACHMENT,
    Job,
    JobError,
    find_jobs,
    job_of_item,
    list_errors,
)
from penstock.worker.statistics import queue_statistics

_FOLLOWING = {Stage.TEXT: Stage.EXTRACT, Stage.EXTRACT: Stage.EMBED}


class QueueManager:
    """Jobs of a library. Ids are those of attachments and of jobs; unknown ones are refused.

    A job claimed by hand is held for half an hour (`PENSTOCK_JOB_TIMEOUT_SECONDS`), since nobody
    sends heartbeats for it; then it is anybody's again.
    """

    def __init__(
        self, db: Database, max_retries: int = 3, stages: Collection[Stage] = (Stage.TEXT,)
    ) -> None:
        self._db = db
        self._store = db.app.database
        self._stages = tuple(stages)
        self._rules = self._rules_for(max_retries)
        self._claims: dict[int, Claim] = {}
        self._lock = threading.Lock()

    def rules_with(self, *, lease_seconds: float, job_timeout_seconds: float) -> WorkQueue:
        """The rules by which this library's jobs are tried again, for leases of this length."""
        return replace(
            self._rules, lease_seconds=lease_seconds, job_timeout_seconds=job_timeout_seconds
        )

    def enqueue(
        self, attachment_id: int, priority: int = 0, deduplicate: bool = True
    ) -> int | None:
        """Ask for an attachment's text. None when a job for it is active already.

        With `deduplicate=False` the id of that active job is returned; there is never a second.
        """
        created = self.enqueue_batch([attachment_id], priority)
        if created or deduplicate:
            return created[0] if created else None
        active = work_items.c.status.in_(ACTIVE_STATUSES)
        with self._store.read() as tx:
            found = self._find(tx, nodes.c.seq == attachment_id, active, *self._ours())
        return found[0].id if found else None

    def enqueue_batch(self, attachment_ids: Sequence[int], priority: int = 0) -> list[int]:
        """The ids of the new jobs, in order; an unknown attachment id means that none is made."""
        if Stage.TEXT not in self._stages:
            raise ValueError(f"jobs begin with text, which is not among {', '.join(self._stages)}")
        with self._store.write() as tx:
            found = find_attachments(tx, self._db.tenant_id, attachment_ids)
            unknown = [str(number) for number in attachment_ids if number not in found]
            if unknown:
                raise ValueError(f"there is no attachment {', '.join(unknown)}; nothing was queued")
            items = [self._new_item(attachment, priority) for attachment in found.values()]
            recorded = self._rules.enqueue(tx, items)
        by_node = {node_id: job_id for (node_id, _), job_id in recorded.items()}
        ordered = (found[number].node_id for number in dict.fromkeys(attachment_ids))
        return [by_node[node_id] for node_id in ordered if node_id in by_node]

    def claim(self, worker_id: str) -> Job | None:
        """Take the job that is due next, for a worker of this name."""
        rules = replace(self._rules, lease_seconds=self._rules.job_timeout_seconds)
        with self._store.write() as tx:
            # A run's items belong to workers, which know how to end a run.
            claim = rules.claim(
                tx,
                worker_id,
                stages=self._stages,
                limit=1,
                run_id=NO_RUN,
                tenant_id=self._db.tenant_id,
            )
            if not claim:
                return None
            rules.start(tx, claim, claim.items)
        with self._lock:
            self._claims[claim.items[0].id] = claim
        return replace(job_of_item(claim.items[0], ItemStatus.PROCESSING), worker_id=worker_id)

    def complete(
        self,
        job_id: int,
        extraction_time_ms: float | None = None,
        confidence: float | None = None,
    ) -> bool:
        """Complete a job that was claimed here; False when it is no longer ours."""
        claim = self._claims.get(job_id)
        if claim is None:
            return False
        with self._store.write() as tx:
            done = self._rules.complete(tx, claim, claim.items, Outcome.DONE)
            if done:
                _keep_measures(tx, claim, extraction_time_ms, confidence)
            self._open_next(tx, claim, close_ended(tx, done))
        self._forget_claim(job_id)
        return bool(done)

    def failed(
        self,
        job_id: int,
        error_message: str,
        error_type: str = "unknown",
        max_retries: int | None = None,
    ) -> bool:
        """Say that a job claimed here failed: it is tried again later, or dead. False when it is
        no longer ours."""
        fault = Fault(_error_class(error_type), error_message)
        claim = self._claims.get(job_id)
        if claim is None:
            return False
        rules = self._rules if max_retries is None else self._rules_for(max_retries)
        with self._store.write() as tx:
            verdicts = rules.fail(tx, claim, [(item, fault) for item in claim.items])
            dead = [verdict for verdict in verdicts if verdict.dead]
            bury(tx, dead)
            tell_failures(tx, verdicts)
            close_failed(tx, dead)
        self._forget_claim(job_id)
        return bool(verdicts)

    def release(self, job_id: int) -> bool:
        """Make a job that is being processed pending again, at no cost to it. Whoever is at it
        can no longer write."""
        with self._store.write() as tx:
            released = self._rules.take_away(tx, work_items.c.id == job_id, *self._ours())
        self._forget_claim(job_id)
        return released > 0

    def cancel(self, job_id: int) -> bool:
        """Cancel a job that has not ended. Whoever is at it can no longer write."""
        with self._store.write() as tx:
            cancelled = self._rules.cancel(tx, work_items.c.id == job_id, *self._ours())
        self._forget_claim(job_id)
        return bool(cancelled)

    def get_job(self, job_id: int) -> Job | None:
        with self._store.read() as tx:
            return next(iter(self._find(tx, work_items.c.id == job_id)), None)

    def get_errors(self, job_id: int) -> list[JobError]:
        """The whole history of a job's failed attempts, oldest first."""
        with self._store.read() as tx:
            return list_errors(tx, job_id) if self._find(tx, work_items.c.id == job_id) else []

    def get_recent_jobs(self, limit: int = 20) -> list[Job]:
        with self._store.read() as tx:
            return self._find(tx, *self._ours(), limit=limit)

    def get_failed_jobs(self, limit: int = 100) -> list[Job]:
        with self._store.read() as tx:
            dead = work_items.c.status == ItemStatus.FAILED
            return self._find(tx, dead, *self._ours(), limit=limit)

    def get_pending_count(self) -> int:
        """Jobs that nobody is at: new ones, and those that wait to be tried again."""
        query = sa.select(sa.func.count()).where(WAITING_ITEM, *self._ours())
        with self._store.read() as tx:
            count: int = tx.execute(query.select_from(work_items)).scalar_one()
        return count

    def retry_failed(self, job_id: int | None = None) -> int:
        """Failed jobs, or this one, become pending again with all their retries; how many."""
        chosen = [] if job_id is None else [work_items.c.id == job_id]
        with self._store.write() as tx:
            return len(self._rules.requeue(tx, *chosen, *self._ours(), note=RETRIED))

    def cleanup_stale_jobs(self, stale_threshold_minutes: float = 30) -> int:
        """Take back jobs whose worker has given no sign of life for so long; how many.

        Workers do this by themselves, as soon as a lease has run out.
        """
        sign = sa.func.coalesce(workers.c.heartbeat_at, work_items.c.claimed_at)
        quiet = (
            sa.select(work_items.c.id)
            .outerjoin(workers, workers.c.id == work_items.c.lease_owner)
            .where(work_items.c.status == ItemStatus.PROCESSING)
        )
        with self._store.read() as tx:
            oldest = tx.now - timedelta(minutes=stale_threshold_minutes)
        stale = work_items.c.id.in_(quiet.where(sign < oldest, *self._ours()))
        settings = self._db.app.settings
        swept = sweep(self._store, self._rules, max_rescues=settings.max_rescues, which=stale)
        return len(swept.freed) + len(swept.rescued) + len(swept.dead)

    def get_queue_stats(self) -> dict[str, Any]:
        with self._store.read() as tx:
            return queue_statistics(tx, self._db.tenant_id, self._stages)

    def _find(
        self, tx: Tx, *conditions: sa.ColumnElement[bool], limit: int | None = None
    ) -> list[Job]:
        return find_jobs(tx, self._db.tenant_id, *conditions, limit=limit)

    def _ours(self) -> list[sa.ColumnElement[bool]]:
        c = work_items.c
        return [c.tenant_id == self._db.tenant_id, c.stage.in_(self._stages)]

    def _forget_claim(self, job_id: int) -> None:
        with self._lock:
            self._claims.pop(job_id, None)

    def _open_next(self, tx: Tx, claim: Claim, done: Sequence[WorkItem]) -> None:
        for item in done:
            following = _FOLLOWING[item.stage]
            self._rules.open_next(tx, claim, [item], following, leased=False)

    def _rules_for(self, max_retries: int) -> WorkQueue:
        queue = self._db.app.queue
        text = RetryRule(1 + max_retries, Steps())
        return replace(queue, rules={**queue.rules, Stage.TEXT: text})

    def _new_item(self, attachment: Attachment, priority: int) -> NewItem:
        payload = {
            "external_id": attachment.filename,
            "file": attachment.uri,
            "media_type": attachment.mime_type,
            ATTACHMENT: attachment.id,
            LAST_STAGE: self._stages[-1],
        }
        return NewItem(
            self._db.tenant_id,
            attachment.node_id,
            Stage.TEXT,
            priority=priority,
            payload={name: value for name, value in payload.items() if value is not None},
        )


def _error_class(name: str) -> ErrorClass:
    try:
        return ErrorClass(name)
    except ValueError:
        known = ", ".join(ErrorClass)
        raise ValueError(f"{name!r} is not an error type: use one of {known}") from None


def _keep_measures(
    tx: Tx, claim: Claim, extraction_time_ms: float | None, confidence: float | None
) -> None:
    item = claim.items[0]
    if extraction_time_ms is not None:
        begun = tx.now - timedelta(milliseconds=extraction_time_ms)
        ours = sa.update(work_items).where(work_items.c.id == item.id)
        tx.execute(ours.values(started_at=begun))
    if confidence is not None:
        node = nodes.c.id == item.node_id
        metadata = tx.execute(sa.select(nodes.c.metadata).where(node)).scalar_one()
        kept = {**metadata, "text_confidence": confidence}
        tx.execute(sa.update(nodes).where(node).values(metadata=kept))
