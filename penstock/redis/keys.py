"""The keys of the queues in Redis, and the JSON of a job there.

The database decides what is work and in which order; all of this may be wiped at any moment.
`{q}` is `text`, `extraction` or `embedding`.

    {q}:queue                   list    payloads of waiting jobs, the newest at the left
    {q}:retry                   zset    payloads of jobs that wait for a retry; score: when it is
                                        due, in seconds since 1970
    {q}:dlq                     list    payloads of dead jobs, the newest 10,000, the newest left
    {q}:pending:{node_id}       string  id of the node's active job
    {q}:tenant:pending:{tenant} string  how many active jobs the tenant has; no key for none

    {q}:jobs                    hash    job id → where an active job stands:
                                        `version job touched place run_at node payload⏎tenant`
                                        version: time of the change, by the database's clock
                                        touched: when this was written, by the clock of Redis
                                        place: queue, retry or claimed
                                        both times in microseconds since 1970, in 16 digits, and
                                        the job in 19, so that the entries sort as they came
    {q}:ended                   zset    ids of jobs that ended a short while ago; score: version.
                                        A late message does not bring them back
    {q}:reserved                zset    `token count tenant` of intake under way; score: when it
                                        expires, in microseconds since 1970
    {q}:queue:next              list    the queue while it is rebuilt, inside one script
    {q}:retry:next              zset    the same for retries

    penstock:reconcile          string  token of the process that reconciles Redis now
    penstock:wake               channel the name of a queue that got a new job

A payload is a JSON object with job_id, node_id, tenant_id, priority, attempts and enqueued_at; in
the DLQ also error and failed_at.
"""

import json
from datetime import UTC, datetime
from enum import StrEnum

from penstock.documents import Fault, Stage

WAKE_CHANNEL = "penstock:wake"
RECONCILE_LOCK = "penstock:reconcile"


class Queue(StrEnum):
    """The name of a stage's queue, as operators know it."""

    TEXT = "text"
    EXTRACTION = "extraction"
    EMBEDDING = "embedding"

    @property
    def stage(self) -> Stage:
        return _STAGES[self]

    @classmethod
    def of(cls, stage: Stage) -> "Queue":
        return _QUEUES[stage]

    def tenant_key(self, tenant_id: str) -> str:
        return f"{self}:tenant:pending:{tenant_id}"


_STAGES = {
    Queue.TEXT: Stage.TEXT,
    Queue.EXTRACTION: Stage.EXTRACT,
    Queue.EMBEDDING: Stage.EMBED,
}
_QUEUES = {stage: queue for queue, stage in _STAGES.items()}


_ERROR_CHARACTERS = 2000
_FIELDS = ("job_id", "node_id", "tenant_id", "priority", "attempts", "enqueued_at")
_JSON = json.JSONEncoder(separators=(",", ":"))


def write_payload(
    job_id: int, node_id: str, tenant_id: str, priority: int, attempts: int, enqueued_at: datetime
) -> str:
    values = (job_id, node_id, tenant_id, priority, attempts, _write_time(enqueued_at))
    return _JSON.encode(dict(zip(_FIELDS, values, strict=True)))


def add_failure(payload: str, at: datetime, fault: Fault | None) -> str:
    """The payload with its last error, for the DLQ."""
    error = f"{fault.kind}: {fault.message}" if fault else "unknown"
    failure = {"error": error[:_ERROR_CHARACTERS], "failed_at": _write_time(at)}
    return _JSON.encode(json.loads(payload) | failure)


def is_payload(text: str) -> bool:
    """Whether this is the payload of a job."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and found.keys() >= {*_FIELDS}


def _write_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
