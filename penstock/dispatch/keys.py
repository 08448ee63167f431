"""The queues, and the keys they have in Redis.

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
                                        version: when it came to stand so, by the database's clock
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

    penstock:reconcile          string  token of who makes Redis follow the database right now
    penstock:wake               channel the name of a queue that something was put into

A payload is a JSON object with job_id, node_id, tenant_id, priority, attempts and enqueued_at; in
the DLQ also error and failed_at.
"""

from enum import StrEnum

from penstock.documents import Stage

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

    def pending_key(self, node_id: str) -> str:
        return f"{self}:pending:{node_id}"

    def tenant_key(self, tenant_id: str) -> str:
        return f"{self}:tenant:pending:{tenant_id}"


_STAGES = {
    Queue.TEXT: Stage.TEXT,
    Queue.EXTRACTION: Stage.EXTRACT,
    Queue.EMBEDDING: Stage.EMBED,
}
_QUEUES = {stage: queue for queue, stage in _STAGES.items()}
