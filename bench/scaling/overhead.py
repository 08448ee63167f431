"""How long it takes from asking for an ingest to its first document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median
from uuid import UUID

from prefect.client.schemas.objects import StateType

from bench.figures import Figure
from bench.scaling.ingesting import Ingested, ingest, read_moments, serving
from bench.scaling.installation import Installation

# Few: what is measured is over when the first of them is done.
DOCUMENTS = 20
DEFAULT_POLL_SECONDS = 10
QUICK_POLL_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Started:
    """One ingest, from the command to the first document, in parts that add up."""

    poll_seconds: int
    parts: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())

    @property
    def to_start(self) -> float:
        """To the flow run's start, without the time that the command itself takes."""
        return self.parts["worker's next look"] + self.parts["process and imports"]

    @property
    def to_first(self) -> float:
        return self.seconds - self.parts["the command"]

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.parts.items())
        return f"poll {self.poll_seconds} s: first document after {self.seconds:.1f} s ({parts})"


def measure_overhead(place: Installation, poll_seconds: int, times: int) -> list[Started]:
    """The same command several times, one after the other, on a pool with one worker."""
    with serving(place, PREFECT_WORKER_QUERY_SECONDS=str(poll_seconds)) as worker:
        ingested = [ingest(place, worker, DOCUMENTS) for _ in range(times)]
    return [Started(poll_seconds, _parts(place, one)) for one in ingested]


def tell(started: Sequence[Started]) -> list[Figure]:
    """Medians, without targets."""
    figures = []
    for poll in dict.fromkeys(one.poll_seconds for one in started):
        own = [one for one in started if one.poll_seconds == poll]
        begun = median(one.to_start for one in own)
        parts = ", ".join(f"{part} {_median(own, part):.2f}" for part in own[0].parts)
        figures.append(
            Figure(
                f"scale.first_document_polled_every_{poll}_s",
                f"flow run asked for → first document, worker looks every {poll} s",
                median(one.to_first for one in own),
                "s",
                detail=f"{begun:.1f} s of it to the flow run's start; medians in s: {parts}",
            )
        )
    return figures


def _median(started: Sequence[Started], part: str) -> float:
    return median(one.parts[part] for one in started)


def _parts(place: Installation, one: Ingested) -> dict[str, float]:
    states = _entered_at(place, one.flow_run_id)
    at = read_moments(place, one.run_id)
    steps = {
        "the command": states[StateType.SCHEDULED],
        "worker's next look": states[StateType.PENDING],
        "process and imports": states[StateType.RUNNING],
        "opening the run": at.opened_at,
        "listing to first claim": at.started_at,
        "first document": at.first_ready_at,
    }
    moments = [one.asked_at, *steps.values()]
    gaps = [(after - before).total_seconds() for before, after in pairwise(moments)]
    return dict(zip(steps, gaps, strict=True))


def _entered_at(place: Installation, flow_run_id: UUID) -> dict[StateType, datetime]:
    """When the flow run came to each state for the first time."""
    found: dict[StateType, datetime] = {}
    states = place.client.read_flow_run_states(flow_run_id)
    for state in sorted(states, key=lambda state: state.timestamp):
        found.setdefault(state.type, state.timestamp)
    return found
