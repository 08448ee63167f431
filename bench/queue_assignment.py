"""What a process of the queue bench is told, and how it answers.

Peers read it too, in environments of their own: only the standard library is imported here.
"""

import json
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass

ENQUEUE = "enqueue"
PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where to work, and how much."""

    address: str
    """Of the store, which is empty."""
    enqueue: int
    """Jobs to enqueue in bulk."""
    process: int
    """Jobs to process, each time."""
    redis_url: str
    """For what needs Redis beside its store."""
    way: str = ""
    """One of the ways in which a contender can be run."""

    def write(self) -> str:
        return json.dumps(asdict(self))


def read_assignment() -> Assignment:
    return Assignment(**json.loads(sys.argv[1]))


def name_way(claims: int, lanes: int = 1) -> str:
    """The figure of one way of draining our queue, or the floor."""
    return f"{PROCESS}, claims of {claims}" + (f", {lanes} lanes" if lanes > 1 else "")


def new_ids(count: int) -> list[str]:
    """The one argument of each job: a node's id."""
    return [str(uuid.uuid4()) for _ in range(count)]


def do_nothing(node_id: str) -> None:
    """The job."""
    del node_id


def rate(jobs: int, work: Callable[[], object]) -> float:
    """Jobs per second."""
    began = time.perf_counter()
    work()
    return jobs / (time.perf_counter() - began)


def tell(rates: dict[str, float]) -> None:
    """The last line of a process's output."""
    sys.stdout.write(json.dumps(rates) + "\n")


def check_done(done: int, wanted: int) -> None:
    if done != wanted:
        raise SystemExit(f"{done} of {wanted} jobs were done: no rate to tell")
