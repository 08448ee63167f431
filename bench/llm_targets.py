"""What the bench of model calls wants of the figures it takes."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.figures import Figure
from bench.llm_standin import Served
from bench.llm_up import Drained
from bench.measure import Measured


@dataclass(frozen=True, slots=True)
class Processed:
    """One drain, seen from both ends of its connections."""

    measured: Measured
    served: Served
    committed_at: float
    latency_seconds: float

    @property
    def seconds(self) -> float:
        """From before the first claim to the end of the drain."""
        return self.measured.seconds

    @property
    def whole_seconds(self) -> float:
        figures = self.measured.figures
        return float(figures["returned_at"] - figures["called_at"])

    @property
    def parts(self) -> dict[str, float]:
        """Where the whole time went, in order."""
        at: dict[str, Any] = self.measured.figures
        answered_at = self.served.last_at + self.latency_seconds
        return {
            "start of the flow": at["drain_began_at"] - at["called_at"],
            "claim to first request": self.served.first_at - at["drain_began_at"],
            "first request to last answer": answered_at - self.served.first_at,
            "last answer to last commit": self.committed_at - answered_at,
            "last commit to end of drain": at["drain_ended_at"] - self.committed_at,
            "end of the flow": at["returned_at"] - at["drain_ended_at"],
        }


def judge_throughput(
    documents: int, bare: Sequence[Measured], paths: Sequence[Processed]
) -> list[Figure]:
    """The whole path against a client that does nothing but ask."""
    bare_rates = [documents / one.seconds for one in bare]
    rates = [documents / one.seconds for one in paths]
    whole = [documents / one.whole_seconds for one in paths]
    return [
        Figure.ratio(
            "llm.process_over_httpx",
            "process, from claim to end of drain, over bare httpx",
            rates,
            bare_rates,
            wanted=0.97,
        ),
        Figure.ratio(
            "llm.whole_flow_over_httpx", "the whole flow run over bare httpx", whole, bare_rates
        ),
    ]


def judge_installation(ceiling_per_second: float, drained: Sequence[Drained]) -> list[Figure]:
    """A flow run on `penstock up` against what the model's latency allows."""
    rates = [one.documents / one.seconds for one in drained]
    best, median = max(rates), statistics.median(rates)
    detail = (
        f"{best:.1f} of {ceiling_per_second:.1f} documents/s; "
        f"median {median / ceiling_per_second:.3f}; {len(rates)} rounds"
    )
    share = best / ceiling_per_second
    what = "process on penstock up, of what the model's latency allows"
    return [Figure("llm.up_share_of_ceiling", what, share, wanted=0.93, detail=detail)]


def judge_limit(ours: Served, sdk: Served, given_up: int, per_second: float) -> list[Figure]:
    """How much of what the limit allows is used, and how often it is run into."""
    reached, refused = _share_of_allowed(ours, per_second), ours.refused_share
    what = f"of {per_second:g} requests/s, used"
    beside = (
        f"{ours.answered} answered, {ours.refused} × 429; the SDK's own retries: {sdk.answered} "
        f"answered, {given_up} given up after {sdk.refused} × 429"
    )
    return [
        Figure("llm.limit_used", what, 100 * reached, "%", wanted=95, detail=beside),
        Figure(
            "llm.limit_refused",
            "calls answered 429",
            100 * refused,
            "%",
            wanted=2,
            lower_is_better=True,
        ),
    ]


def judge_share(
    documents: int, direct: Sequence[Processed], flow: Sequence[Processed]
) -> list[Figure]:
    """What tasks cost, where no waiting for a model hides it: the whole elapsed time counts, so
    also what the worker waits for the Prefect server and loses to it on the same cores."""
    elapsed = min(one.seconds for one in flow) - min(one.seconds for one in direct)
    cpu = min(map(_cpu_seconds, flow)) - min(map(_cpu_seconds, direct))
    median = statistics.median(one.seconds for one in flow) - statistics.median(
        one.seconds for one in direct
    )
    detail = (
        f"median {1_000 * median / documents:.1f} ms; {1_000 * cpu / documents:.1f} ms of it "
        f"processor time in the worker; {len(flow)} rounds"
    )
    return [
        Figure(
            "llm.prefect_share",
            "Prefect's share, each document",
            1_000 * elapsed / documents,
            "ms",
            wanted=10,
            lower_is_better=True,
            detail=detail,
        )
    ]


def judge_memory(few: Sequence[Processed], many: Processed) -> Figure:
    """The worker's highest memory over many documents, less that over few."""
    growth = many.measured.peak_mb - max(one.measured.peak_mb for one in few)
    what = f"memory growth from {few[0].served.answered:,} to {many.served.answered:,}"
    return Figure("llm.memory_growth", what, growth, "MB", wanted=50, lower_is_better=True)


def _share_of_allowed(served: Served, per_second: float) -> float:
    # The stand-in's bucket is full at first and holds what one second allows.
    allowed = per_second * (1 + served.last_at - served.first_at)
    return served.answered / allowed


def _cpu_seconds(one: Processed) -> float:
    return float(one.measured.figures["drain_cpu_seconds"])
