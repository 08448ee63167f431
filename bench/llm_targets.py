"""What the bench of model calls wants of the figures it takes."""

from dataclasses import dataclass
from typing import Any

from bench.llm_standin import Served
from bench.measure import Measured
from bench.pipeline import Target


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
    documents: int, ideal_seconds: float, bare: list[Measured], paths: list[Processed]
) -> list[Target]:
    """The whole path against a client that does nothing but ask; the best round of each."""
    bare_seconds = min(one.seconds for one in bare)
    path = min(paths, key=lambda one: one.seconds)
    ratio = bare_seconds / path.seconds
    asking = path.committed_at - path.served.first_at
    return [
        _told("bare httpx", documents, bare_seconds, ideal_seconds),
        _told("process, from claim to end of drain", documents, path.seconds, ideal_seconds),
        _told("process, from first request to last commit", documents, asking, ideal_seconds),
        _told("process, the whole flow run", documents, path.whole_seconds, ideal_seconds),
        Target("process over bare httpx", "≥ 0.97 ×", f"{ratio:.3f} ×", ratio >= 0.97),
    ]


def judge_limit(ours: Served, sdk: Served, given_up: int, per_second: float) -> list[Target]:
    """How much of what the limit allows is used, and how often it is run into."""
    reached, refused = _share_of_allowed(ours, per_second), ours.refused_share
    told = f"{sdk.answered} answered, {given_up} given up after {sdk.refused} × 429"
    return [
        Target(f"of {per_second:g} requests/s, used", "≥ 95 %", f"{reached:.1%}", reached >= 0.95),
        Target("calls answered 429", "< 2 %", f"{refused:.1%}", refused < 0.02),
        Target("the SDK's own retries", "", told, True),
    ]


def judge_share(documents: int, direct: list[Processed], flow: list[Processed]) -> list[Target]:
    """What tasks cost, where no waiting for a model hides it: the whole elapsed time counts, so
    also what the worker waits for the Prefect server and loses to it on the same cores."""
    elapsed = min(one.seconds for one in flow) - min(one.seconds for one in direct)
    cpu = min(map(_cpu_seconds, flow)) - min(map(_cpu_seconds, direct))
    each_ms, cpu_ms = elapsed / documents * 1000, cpu / documents * 1000
    return [
        Target("Prefect's share, each document", "< 10 ms", f"{each_ms:.1f} ms", each_ms < 10),
        Target("of it processor time in the worker", "", f"{cpu_ms:.1f} ms", True),
    ]


def judge_memory(few: list[Processed], many: Processed) -> Target:
    """The worker's highest memory over many documents, less that over few."""
    growth = many.measured.peak_mb - max(one.measured.peak_mb for one in few)
    what = f"memory growth from {few[0].served.answered:,} to {many.served.answered:,}"
    return Target(what, "< 50 MB", f"{growth:.0f} MB", growth < 50)


def _told(what: str, documents: int, seconds: float, ideal_seconds: float) -> Target:
    share = ideal_seconds / seconds
    measured = f"{seconds:.2f} s, {documents / seconds:.1f} documents/s, {share:.1%} of the ideal"
    return Target(what, "", measured, True)


def _share_of_allowed(served: Served, per_second: float) -> float:
    # The stand-in's bucket is full at first and holds what one second allows.
    allowed = per_second * (1 + served.last_at - served.first_at)
    return served.answered / allowed


def _cpu_seconds(one: Processed) -> float:
    return float(one.measured.figures["drain_cpu_seconds"])
