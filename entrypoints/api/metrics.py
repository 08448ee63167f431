"""Figures of the store in the form that Prometheus reads."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from penstock.app import App
from penstock.documents import Stage
from penstock.operations import status
from penstock.queue.stats import count_for_review
from penstock.redis.keys import Queue
from penstock.store.database import Tx


def render_metrics(app: App, tenant_id: str | None) -> tuple[str, str]:
    """The figures at this moment, of one tenant or of all, and their media type."""
    with app.database.read() as tx:
        registry = CollectorRegistry()
        registry.register(_Collector(tx, tenant_id))
        return generate_latest(registry).decode(), CONTENT_TYPE_PLAIN_0_0_4


class _Collector:
    """Asks the store when it is scraped: the figures are those of all processes."""

    def __init__(self, tx: Tx, tenant_id: str | None) -> None:
        self._tx = tx
        self._tenant_id = tenant_id

    def collect(self) -> Iterator[Metric]:
        yield from self._queues()
        yield from self._models()
        active = status.active_runs(self._tx, self._tenant_id)
        yield GaugeMetricFamily("penstock_active_runs", "Runs that have not ended", value=active)
        doubtful = count_for_review(self._tx, self._tenant_id)
        yield GaugeMetricFamily(
            "penstock_nodes_needing_review", "Nodes that need review", value=doubtful
        )
        if self._tenant_id is None:
            yield from self._service()

    def _service(self) -> Iterator[Metric]:
        """What is counted for all tenants together, and never goes down."""
        errors = CounterMetricFamily(
            "penstock_failed_attempts", "Failed attempts by class", labels=["error_class"]
        )
        for name, count in status.failed_attempts(self._tx).items():
            errors.add_metric([name], count)
        yield errors
        completed = status.completed_items(self._tx)
        yield CounterMetricFamily("penstock_items_completed", "Items completed", value=completed)
        workers = status.live_workers(self._tx)
        yield GaugeMetricFamily("penstock_workers", "Workers that are alive", value=workers)

    def _queues(self) -> Iterator[Metric]:
        depth = _gauge("queue_depth", "Jobs that wait")
        retry = _gauge("queue_retry", "Jobs that wait for a retry")
        processing = _gauge("queue_processing", "Jobs that a worker is at")
        dead = _gauge("queue_dlq", "Dead letters")
        age = _gauge("queue_oldest_pending_seconds", "Age of the oldest job that waits")
        rate = _gauge("queue_done_per_second", "Jobs done per second in the last minute")
        latency = _gauge("stage_latency_seconds", "How long the newest jobs took", "quantile")
        for stage in Stage:
            name = str(Queue.of(stage))
            found = status.stage_figures(self._tx, stage, self._tenant_id)
            depth.add_metric([name], found.waiting)
            retry.add_metric([name], found.retrying)
            processing.add_metric([name], found.processing)
            dead.add_metric([name], found.dead)
            age.add_metric([name], found.oldest_waiting_seconds)
            rate.add_metric([name], found.done_per_second)
            for quantile, seconds in found.latency_seconds.items():
                latency.add_metric([name, str(quantile)], seconds)
        yield from (depth, retry, processing, dead, age, rate, latency)

    def _models(self) -> Iterator[Metric]:
        labels = ["model", "outcome"]
        calls = CounterMetricFamily("penstock_model_calls", "Calls to models", labels=labels)
        tokens = CounterMetricFamily(
            "penstock_model_tokens", "Tokens of calls", labels=["model", "outcome", "kind"]
        )
        cost = CounterMetricFamily("penstock_model_cost_usd", "Cost of calls", labels=labels)
        for row in status.model_figures(self._tx, self._tenant_id):
            calls.add_metric([row.model, row.outcome], row.calls)
            tokens.add_metric([row.model, row.outcome, "prompt"], row.prompt_tokens)
            tokens.add_metric([row.model, row.outcome, "completion"], row.completion_tokens)
            cost.add_metric([row.model, row.outcome], float(row.cost_usd))
        rate = status.fallback_rate(self._tx, self._tenant_id)
        described = "Share of the newest extractions that the fallback model answered"
        yield from (calls, tokens, cost)
        yield GaugeMetricFamily("penstock_fallback_rate", described, value=rate)


def _gauge(name: str, described: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"penstock_{name}", described, labels=["queue", *labels])
