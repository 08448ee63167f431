"""How much lies in the queues, for people who look."""

from typing import TYPE_CHECKING, Any

from penstock.dispatch.connection import explained
from penstock.dispatch.keys import Queue

if TYPE_CHECKING:
    from redis import Redis


def queue_depths(client: "Redis") -> dict[str, dict[str, int]]:
    """For every queue: how many jobs wait, wait for a retry, and are dead."""
    with explained(client), client.pipeline(transaction=True) as pipeline:
        for queue in Queue:
            pipeline.llen(f"{queue}:queue")
            pipeline.zcard(f"{queue}:retry")
            pipeline.llen(f"{queue}:dlq")
        sizes = [_read_size(answer) for answer in pipeline.execute(raise_on_error=False)]
    rows = zip(sizes[::3], sizes[1::3], sizes[2::3], strict=True)
    return {
        queue.value: {"queue": waiting, "retry": retries, "dlq": dead}
        for queue, (waiting, retries, dead) in zip(Queue, rows, strict=True)
    }


def _read_size(answer: Any) -> int:
    # An error means a value of another kind, which holds no job.
    return answer if isinstance(answer, int) else 0
