"""rq on Redis.

`enqueue_many` sends a batch in one pipeline; batches of 1,000 were as quick as any. The worker is
`SimpleWorker`, which runs jobs in its own process: the default one forks for every job, and is
slower still. Results are kept as by default; not keeping them made no difference.
"""

from redis import Redis
from rq import Queue, SimpleWorker

from bench.queue_assignment import (
    ENQUEUE,
    PROCESS,
    Assignment,
    check_done,
    do_nothing,
    new_ids,
    rate,
    read_assignment,
    tell,
)

BATCH = 1_000


def main(given: Assignment) -> None:
    connection = Redis.from_url(given.address)
    queue = Queue(connection=connection)
    worker = SimpleWorker([queue], connection=connection)

    enqueue(queue, new_ids(given.process))
    processed = rate(given.process, lambda: worker.work(burst=True, logging_level="WARNING"))
    check_done(queue.finished_job_registry.count, given.process)

    ids = new_ids(given.enqueue)
    enqueued = rate(given.enqueue, lambda: enqueue(queue, ids))
    check_done(len(queue), given.enqueue)
    tell({ENQUEUE: enqueued, PROCESS: processed})


def enqueue(queue: Queue, ids: list[str]) -> None:
    for first in range(0, len(ids), BATCH):
        some = ids[first : first + BATCH]
        queue.enqueue_many([Queue.prepare_data(do_nothing, (node_id,)) for node_id in some])


if __name__ == "__main__":
    main(read_assignment())
