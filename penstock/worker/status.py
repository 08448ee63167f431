"""A worker's state as plain values."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from penstock.store.database import Tx
from penstock.store.schema import workers
from penstock.worker.thread import WorkerThread


def worker_status(
    tx: Tx, threads: Sequence[WorkerThread], queue: dict[str, Any], uptime_seconds: float
) -> dict[str, Any]:
    """Queue depth, threads and figures since the start."""
    beats = _heartbeats(tx, [thread.worker_id for thread in threads])
    completed = sum(thread.heart.items_completed for thread in threads)
    failed = sum(thread.heart.items_failed for thread in threads)
    return {
        "queue_depth": queue["pending"] + queue["retry_pending"],
        "processing": queue["processing"],
        "retry_pending": queue["retry_pending"],
        "failed": queue["failed"],
        "active_workers": sum(thread.is_alive() for thread in threads),
        "trouble": next((thread.trouble for thread in threads if thread.trouble), None),
        "workers": [_describe(thread, beats) for thread in threads],
        "stats": {
            "jobs_completed": completed,
            "jobs_failed": failed,
            "uptime_seconds": uptime_seconds,
            "throughput_per_second": completed / uptime_seconds if uptime_seconds else 0.0,
            "avg_extraction_time_ms": queue["avg_extraction_time_ms"],
        },
    }


def _describe(thread: WorkerThread, beats: dict[str, Any]) -> dict[str, Any]:
    return {
        "worker_id": thread.worker_id,
        "status": thread.status,
        # Of a job that was cancelled or released meanwhile, nobody tells the end.
        "current_job_id": thread.teller.current_job_id if thread.lane.held else None,
        "jobs_completed": thread.heart.items_completed,
        "jobs_failed": thread.heart.items_failed,
        "last_heartbeat": beats.get(thread.worker_id),
    }


def _heartbeats(tx: Tx, worker_ids: Sequence[str]) -> dict[str, Any]:
    query = sa.select(workers.c.id, workers.c.heartbeat_at).where(workers.c.id.in_(worker_ids))
    return {row.id: row.heartbeat_at for row in tx.execute(query)}
