"""The queue of one library, job by job, for programs that use it directly."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.operations.jobs import RETRIED
from penstock.pipeline.stage import close_dead, open_next_stages, record_failures
from penstock.queue.claim import NO_RUN
from penstock.queue.items import (
    WAITING_STATUSES,
    Claim,
    ItemPayload,
    ItemStatus,
    NewItem,
    Outcome,
    WorkItem,
    has_status,
)
from penstock.queue.queue import WorkQueue
from penstock.queue.retry import FixedDelays, RetryRule
from penstock.queue.stats import by_status, count_items, newest_done
from penstock.recovery import sweep
from penstock.store.database import Tx
from penstock.store.schema import ACTIVE_ITEM, attempts, nodes, work_items, workers
from penstock.worker.library import Attachment, Database, find_attachments


@dataclass(frozen=True, slots=True)
class Job:
    """One stage of one document's work."""

    id: int
    attachment_id: int | None
    node_id: str
    stage: Stage
    status: ItemStatus
    priority: int
    retry_count: int
    error_message: str | None = None
    error_type: str | None = None
    worker_id: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    next_retry_at: datetime | None = None

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class JobError:
    """One failed attempt, from the job's history."""

    attempt: int
    error_type: str
    error_message: str
    worker_id: str | None
    failed_at: datetime


def job_of_item(item: WorkItem, status: ItemStatus) -> Job:
    """A job as a worker holds it."""
    return Job(
        id=item.id,
        attachment_id=item.payload.attachment_id,
        node_id=item.node_id,
        stage=item.stage,
        status=status,
        priority=item.priority,
        retry_count=item.attempts,
    )


_DAY = timedelta(hours=24)
_AVERAGED_JOBS = 1000


def queue_statistics(tx: Tx, tenant_id: str, stages: Collection[Stage]) -> dict[str, Any]:
    """Jobs by status, and what happened to them in the last 24 hours."""
    recent = work_items.c.finished_at > tx.now - _DAY
    ended_statuses = (ItemStatus.COMPLETE, ItemStatus.FAILED)
    ended = by_status(count_items(tx, recent, tenant_id=tenant_id, statuses=ended_statuses), stages)
    return by_status(count_items(tx, tenant_id=tenant_id), stages) | {
        "completed_24h": ended[ItemStatus.COMPLETE],
        "failed_24h": ended[ItemStatus.FAILED],
        "avg_extraction_time_ms": _average_milliseconds(tx, tenant_id, stages),
    }


def _average_milliseconds(tx: Tx, tenant_id: str, stages: Collection[Stage]) -> float:
    """Average over the latest completed jobs; 0 before the first."""
    rows = [row for stage in stages for row in newest_done(tx, stage, tenant_id, _AVERAGED_JOBS)]
    latest = sorted(rows, key=lambda row: row.finished_at, reverse=True)[:_AVERAGED_JOBS]
    spent = [(row.finished_at - row.started_at).total_seconds() for row in latest]
    return round(1000 * sum(spent) / len(spent), 1) if spent else 0.0


class QueueManager:
    """Jobs of a library, one by one; `ExtractionWorker` does all of this by itself.

    A job claimed here has no heartbeats: its lease lasts half an hour
    (`PENSTOCK_JOB_TIMEOUT_SECONDS`), then other workers may claim it.

    Args:
        db: The library.
        max_retries: Retries of a job whose text could not be extracted.
        stages: The stages whose jobs are claimed and counted here.

    Example:
        queue = QueueManager(db)
        queue.enqueue(attachment_id)
        while job := queue.claim("my program"):
            queue.complete(job.id)
    """

    def __init__(
        self, db: Database, max_retries: int = 3, stages: Collection[Stage] = (Stage.TEXT,)
    ) -> None:
        self._db = db
        self._store = db.app.database
        self._stages = tuple(stages)
        self.rules = self._rules_for(max_retries)
        self._claims: dict[int, Claim] = {}

    def enqueue(
        self, attachment_id: int, priority: int = 0, deduplicate: bool = True
    ) -> int | None:
        """Ask for an attachment's text.

        Args:
            attachment_id: From `Database.add_attachment`.
            priority: Higher ones go first, then the oldest.
            deduplicate: What to return when a job for it is active, since there is never a second:
                None, or with False the id of that job.

        Raises:
            ValueError: There is no such attachment.
        """
        created = self.enqueue_batch([attachment_id], priority)
        if created or deduplicate:
            return created[0] if created else None
        with self._store.read() as tx:
            found = self._find(tx, nodes.c.seq == attachment_id, ACTIVE_ITEM, *self._ours())
        return found[0].id if found else None

    def enqueue_batch(self, attachment_ids: Sequence[int], priority: int = 0) -> list[int]:
        """Ask for the texts of many `attachment_ids` with one `priority`; the ids of the new jobs,
        in order. When one is unknown, ValueError is raised and none is queued."""
        if Stage.TEXT not in self._stages:
            raise ValueError(f"jobs begin with text, which is not among {', '.join(self._stages)}")
        with self._store.write() as tx:
            found = find_attachments(tx, self._db.tenant_id, attachment_ids)
            unknown = [str(number) for number in attachment_ids if number not in found]
            if unknown:
                raise ValueError(f"there is no attachment {', '.join(unknown)}; nothing was queued")
            items = [self._new_item(attachment, priority) for attachment in found.values()]
            recorded = self.rules.enqueue(tx, items)
        by_node = {node_id: job_id for (node_id, _), job_id in recorded.items()}
        ordered = (found[number].node_id for number in dict.fromkeys(attachment_ids))
        return [by_node[node_id] for node_id in ordered if node_id in by_node]

    def claim(self, worker_id: str) -> Job | None:
        """Take the job that is due next, in the name of `worker_id`; None when none is due."""
        rules = replace(self.rules, lease_seconds=self.rules.job_timeout_seconds)
        with self._store.write() as tx:
            # A run's items are for workers, which also finish the run.
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
        self._claims[claim.items[0].id] = claim
        return replace(job_of_item(claim.items[0], ItemStatus.PROCESSING), worker_id=worker_id)

    def complete(
        self,
        job_id: int,
        extraction_time_ms: float | None = None,
        confidence: float | None = None,
    ) -> bool:
        """Complete a job that was claimed here; False when it is no longer ours.

        Args:
            job_id: The job.
            extraction_time_ms: How long it took; None: the time since it was claimed.
            confidence: How good the text is, kept in the metadata of the document.
        """
        claim = self._claims.get(job_id)
        if claim is None:
            return False
        with self._store.write() as tx:
            done = self.rules.complete(tx, claim, claim.items, Outcome.DONE)
            if done:
                _keep_measures(tx, claim, extraction_time_ms, confidence)
            open_next_stages(tx, self.rules, claim, done)
        self._claims.pop(job_id, None)
        return bool(done)

    def failed(
        self,
        job_id: int,
        error_message: str,
        error_type: str = "unknown",
        max_retries: int | None = None,
    ) -> bool:
        """Fail a job that was claimed here: it is tried again later, or dead. False when it is no
        longer ours.

        Args:
            job_id: The job.
            error_message: What went wrong, for people.
            error_type: The class of the error, which decides about retries: `timeout`,
                `corruption`, `unknown` and so on.
            max_retries: Instead of the manager's own.

        Raises:
            ValueError: There is no such error type.
        """
        fault = Fault(_error_class(error_type), error_message)
        claim = self._claims.get(job_id)
        if claim is None:
            return False
        rules = self.rules if max_retries is None else self._rules_for(max_retries)
        with self._store.write() as tx:
            verdicts = rules.fail(tx, claim, [(item, fault) for item in claim.items])
            record_failures(tx, verdicts)
            open_next_stages(tx, rules, claim, close_dead(tx, verdicts))
        self._claims.pop(job_id, None)
        return bool(verdicts)

    def release(self, job_id: int) -> bool:
        """Make the job `job_id`, which is being processed, pending again, at no cost to it. Its
        worker can no longer write."""
        with self._store.write() as tx:
            released = self.rules.take_away(tx, work_items.c.id == job_id, *self._ours())
        self._claims.pop(job_id, None)
        return released > 0

    def cancel(self, job_id: int) -> bool:
        """Cancel the job `job_id`, which has not ended. Its worker can no longer write."""
        with self._store.write() as tx:
            cancelled = self.rules.cancel(tx, work_items.c.id == job_id, *self._ours())
        self._claims.pop(job_id, None)
        return bool(cancelled)

    def get_job(self, job_id: int) -> Job | None:
        """The job `job_id`; None for an unknown id."""
        with self._store.read() as tx:
            return next(iter(self._find(tx, work_items.c.id == job_id)), None)

    def get_errors(self, job_id: int) -> list[JobError]:
        """All failed attempts of the job `job_id`, the oldest first."""
        c = attempts.c
        query = sa.select(c.attempt, c.error_class, c.message, c.owner, c.failed_at)
        with self._store.read() as tx:
            if not self._find(tx, work_items.c.id == job_id):
                return []
            rows = tx.execute(query.where(c.item_id == job_id).order_by(c.id))
            return [JobError(*row) for row in rows]

    def get_recent_jobs(self, limit: int = 20) -> list[Job]:
        """The latest jobs, the newest first, at most `limit`."""
        with self._store.read() as tx:
            return self._find(tx, *self._ours(), limit=limit)

    def get_failed_jobs(self, limit: int = 100) -> list[Job]:
        """The jobs that failed for good, the newest first, at most `limit`."""
        with self._store.read() as tx:
            return self._find(tx, has_status(ItemStatus.FAILED), *self._ours(), limit=limit)

    def get_pending_count(self) -> int:
        """How many jobs wait: new ones, and those that wait to be tried again."""
        with self._store.read() as tx:
            return count_items(tx, *self._ours(), statuses=WAITING_STATUSES).total()

    def retry_failed(self, job_id: int | None = None) -> int:
        """All failed jobs, or only `job_id`, become pending again with all their retries; how many
        there were."""
        chosen = [] if job_id is None else [work_items.c.id == job_id]
        with self._store.write() as tx:
            return len(self.rules.requeue(tx, *chosen, *self._ours(), note=RETRIED))

    def cleanup_stale_jobs(self, stale_threshold_minutes: float = 30) -> int:
        """Take back jobs whose worker has sent no heartbeat for `stale_threshold_minutes`.

        Workers do this by themselves, as soon as a lease has expired. Returns how many there were.
        """
        last_beat = sa.func.coalesce(workers.c.heartbeat_at, work_items.c.claimed_at)
        processing = (
            sa.select(work_items.c.id)
            .outerjoin(workers, workers.c.id == work_items.c.lease_owner)
            .where(sa.text("work_items.status = 'processing'"))
        )
        with self._store.read() as tx:
            oldest = tx.now - timedelta(minutes=stale_threshold_minutes)
        stale = work_items.c.id.in_(processing.where(last_beat < oldest, *self._ours()))
        swept = sweep(self._store, self.rules, which=stale)
        return len(swept.freed) + len(swept.rescued) + len(swept.dead)

    def get_queue_stats(self) -> dict[str, Any]:
        """Jobs by status, and what happened to them in the last 24 hours."""
        with self._store.read() as tx:
            return queue_statistics(tx, self._db.tenant_id, self._stages)

    def _find(
        self,
        tx: Tx,
        *conditions: sa.ColumnElement[bool] | sa.TextClause,
        limit: int | None = None,
    ) -> list[Job]:
        """Jobs of the library's tenant, the newest first."""
        query = (
            sa.select(work_items, nodes.c.seq)
            .join(nodes, nodes.c.id == work_items.c.node_id)
            .where(work_items.c.tenant_id == self._db.tenant_id, *conditions)
            .order_by(work_items.c.id.desc())
            .limit(limit)
        )
        return [
            Job(
                id=row.id,
                attachment_id=row.seq,
                node_id=row.node_id,
                stage=Stage(row.stage),
                status=ItemStatus(row.status),
                priority=row.priority,
                retry_count=row.attempts,
                error_message=row.error_message,
                error_type=row.error_class,
                worker_id=row.lease_owner,
                created_at=row.created_at,
                started_at=row.started_at,
                completed_at=row.finished_at,
                next_retry_at=row.run_at if row.status == ItemStatus.RETRY_PENDING else None,
            )
            for row in tx.execute(query)
        ]

    def _ours(self) -> list[sa.ColumnElement[bool]]:
        c = work_items.c
        return [c.tenant_id == self._db.tenant_id, c.stage.in_(self._stages)]

    def _rules_for(self, max_retries: int) -> WorkQueue:
        queue = self._db.app.queue
        text = RetryRule(1 + max_retries, FixedDelays())
        return replace(queue, rules={**queue.rules, Stage.TEXT: text})

    def _new_item(self, attachment: Attachment, priority: int) -> NewItem:
        payload = ItemPayload(
            external_id=attachment.filename,
            file=attachment.uri,
            media_type=attachment.mime_type,
            attachment_id=attachment.id,
            last_stage=self._stages[-1],
        )
        tenant_id, node_id = self._db.tenant_id, attachment.node_id
        return NewItem(tenant_id, node_id, Stage.TEXT, priority=priority, payload=payload)


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
