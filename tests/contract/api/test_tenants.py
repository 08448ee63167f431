"""No route lets one tenant see or change what is another's."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client.parser import text_string_to_metric_families

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.events import Event, record
from penstock.runs.lifecycle import begin_ingesting, open_run, take_run
from penstock.runs.run import SourceSpec
from penstock.store.database import Tx
from penstock.store.schema import (
    attempts,
    canary_documents,
    embeddings,
    extractions,
    metadata,
    model_calls,
    nodes,
    passages,
    run_documents,
    texts,
)
from tests.contract.api.routes import OPEN, routes_of
from tests.contract.api.service import MakeService, Service
from tests.contract.api.tokens import SECRET, as_tenant
from tests.contract.ingestion import make_text

OURS, THEIRS = "acme", "globex"
WORD = "xylophone"
NOTHING: dict[str, Any] = {"queue": 0, "retry": 0, "dlq": 0}


@dataclass(frozen=True)
class Belongings:
    """What the other tenant has."""

    node: str
    dead_job: int
    active_job: int
    run: int

    @property
    def values(self) -> dict[str, Any]:
        return {"node_id": self.node, "job_id": self.dead_job, "run_id": self.run}


Answer = Any
Check = Callable[[Answer], bool]


@dataclass(frozen=True)
class Attempt:
    """What is asked with our token about their things, and what may come of it."""

    status: int = 404
    json: Callable[[Belongings], Any] | None = None
    params: Callable[[Belongings], Any] | None = None
    files: bool = False
    fine: Check = lambda _: True
    queue: str = "extraction"


def no_jobs(answer: Answer) -> bool:
    return bool(answer == {"jobs": [], "next_before": None})


def none_moved(verb: str, requested: int) -> Check:
    """All that was asked for is refused, as if it were not there."""

    def check(answer: Answer) -> bool:
        reasons = [one["reason"] == f"there is no job {one['id']}" for one in answer["refused"]]
        counts = (answer["requested"], answer[verb], len(reasons))
        return counts == (requested, 0, requested) and all(reasons)

    return check


def bulk(verb: str) -> list[Attempt]:
    """Their jobs by name, and by what a filter finds."""
    return [
        Attempt(
            200,
            json=lambda their: {"ids": [their.dead_job, their.active_job]},
            fine=none_moved(verb, 2),
        ),
        Attempt(200, json=lambda _: {"status": "failed"}, fine=none_moved(verb, 0)),
        Attempt(200, json=lambda _: {"status": "pending"}, fine=none_moved(verb, 0)),
        Attempt(200, json=lambda their: {"node_id": their.node}, fine=none_moved(verb, 0)),
        Attempt(200, json=lambda their: {"run_id": their.run}, fine=none_moved(verb, 0)),
    ]


def no_hits(answer: Answer) -> bool:
    return bool(answer["hits"] == [])


def search_by(mode: str) -> Attempt:
    return Attempt(200, params=lambda _: {"q": WORD, "mode": mode}, fine=no_hits)


TABLE: dict[str, list[Attempt]] = {
    "GET /nodes/{node_id}": [Attempt()],
    "DELETE /nodes/{node_id}": [Attempt()],
    "POST /nodes/{node_id}/refresh": [Attempt()],
    "GET /review": [Attempt(200, fine=lambda answer: answer == {"items": [], "next": None})],
    "PATCH /nodes/{node_id}/fields": [Attempt(json=lambda _: {"fields": {"title": "ours"}})],
    "POST /nodes/{node_id}/accept": [Attempt()],
    "GET /search": [search_by("text"), search_by("vector"), search_by("hybrid")],
    "GET /passages": [
        Attempt(200, params=lambda _: {"q": WORD}, fine=lambda answer: answer["passages"] == [])
    ],
    "GET /runs": [Attempt(200, fine=lambda answer: answer == [])],
    "POST /runs": [Attempt(400, json=lambda _: {"source": "their-folder"})],
    "GET /runs/{run_id}": [Attempt()],
    "POST /runs/{run_id}/abort": [Attempt()],
    "POST /runs/{run_id}/resume": [Attempt()],
    "GET /runs/{run_id}/logs": [Attempt()],
    "GET /runs/{run_id}/events": [Attempt()],
    "GET /admin/{queue}/status": [
        Attempt(
            200,
            queue=queue,
            fine=lambda answer: answer["status_counts"] == {} and answer["queue"] == NOTHING,
        )
        for queue in ("extraction", "embedding")
    ],
    "POST /admin/{queue}/requeue": [
        Attempt(
            200,
            queue=queue,
            json=lambda their: {"node_ids": [their.node], "backfill_ready": True},
            fine=lambda answer: set(answer.values()) == {0},
        )
        for queue in ("extraction", "embedding")
    ],
    "GET /admin/{queue}/dlq": [Attempt(200, fine=no_jobs)],
    "DELETE /admin/{queue}/dlq": [Attempt(200, fine=lambda answer: answer == {"purged": 0})],
    "POST /admin/{queue}/dlq/replay": [
        Attempt(
            200,
            json=lambda their: {"ids": [their.dead_job]},
            fine=lambda answer: answer == {"replayed": 0},
        ),
        Attempt(200, json=lambda _: {}, fine=lambda answer: answer == {"replayed": 0}),
    ],
    "GET /extraction-jobs": [
        Attempt(200, fine=no_jobs),
        Attempt(200, params=lambda their: {"node_id": their.node}, fine=no_jobs),
        Attempt(200, params=lambda their: {"run_id": their.run}, fine=no_jobs),
    ],
    "POST /extraction-jobs": [Attempt(404, json=lambda their: {"node_id": their.node})],
    "GET /extraction-jobs/statistics": [
        Attempt(
            200,
            fine=lambda answer: all(set(one.values()) == {0} for one in answer.values()),
        )
    ],
    "GET /extraction-jobs/stuck": [
        Attempt(200, fine=lambda answer: answer == {"jobs": [], "processing": 0})
    ],
    "POST /extraction-jobs/retry": bulk("retried"),
    "POST /extraction-jobs/cancel": bulk("cancelled"),
    "GET /extraction-jobs/{job_id}": [Attempt()],
    "POST /extraction-jobs/{job_id}/retry": [Attempt()],
    "POST /extraction-jobs/{job_id}/cancel": [Attempt()],
    "DELETE /extraction-jobs/{job_id}": [Attempt()],
    # Whose figures they are: below.
    "GET /metrics": [Attempt(200)],
    # Last, since what they make is ours to see.
    "POST /nodes": [
        Attempt(200, json=lambda _: {"props": {"text": "ours"}}),
        Attempt(403, json=lambda _: {"tenant_id": THEIRS}),
    ],
    "POST /nodes/batch": [
        Attempt(200, json=lambda _: {"nodes": [{}]}),
        Attempt(403, json=lambda _: {"nodes": [{"tenant_id": THEIRS}]}),
    ],
    "POST /upload": [Attempt(200, files=True)],
}


@pytest.fixture
def guarded(make_service: MakeService) -> Service:
    return make_service(api_jwt_secret=SECRET)


@pytest.fixture
def theirs(guarded: Service, tmp_path: Path) -> Belongings:
    """A node that was extracted, a dead letter, a waiting job, and a run with a log."""
    headers = as_tenant(THEIRS)

    def add(text: str) -> Any:
        body = {"props": {"text": text}, "extract_before_embed": True}
        return guarded.http.post("/nodes", json=body, headers=headers).json()

    guarded.steps.on(Stage.EXTRACT, "dead", *[Fault(ErrorClass.TIMEOUT, WORD)] * 2)
    node, dead = add(make_text("theirs", WORD)), add(make_text("dead", WORD))
    guarded.work()
    waiting = add(make_text("waiting", WORD))
    run = start_run(guarded, tmp_path)
    return Belongings(node["id"], dead["extraction_job_id"], waiting["extraction_job_id"], run)


def start_run(service: Service, folder: Path) -> int:
    spec = SourceSpec(THEIRS, "their-folder", "folder", str(folder))
    run = open_run(service.database, spec, profile=None, force=False)
    lease = take_run(service.database, run.id, lease_seconds=600)
    begin_ingesting(service.database, lease)
    with service.database.write() as tx:
        record(tx, Event(THEIRS, "ING", WORD, run_id=run.id))
    return run.id


def snapshot(service: Service) -> list[tuple[Any, ...]]:
    """Every row that is theirs."""
    with service.database.read() as tx:
        return [
            (table.name, *row)
            for table in metadata.sorted_tables
            for row in tx.execute(
                sa.select(table).where(is_theirs(tx, table)).order_by(*table.primary_key)
            )
        ]


def is_theirs(tx: Tx, table: sa.Table) -> sa.ColumnElement[bool]:
    if "tenant_id" in table.c:
        return table.c.tenant_id == THEIRS
    if table in (texts, passages, embeddings, canary_documents):
        own = sa.select(nodes.c.seq).where(nodes.c.tenant_id == THEIRS)
        return table.c.seq.in_(tx.execute(own).scalars().all())
    # Only they have runs, failures and workers here; a duty or a configuration is nobody's.
    assert table in (run_documents, attempts) or table.name in (
        "workers",
        "configurations",
        "duties",
        "vector_identity",
        "tallies",
    )
    return sa.true()


def make(service: Service, route: str, attempt: Attempt, their: Belongings, job: int) -> Any:
    method, _, path = route.partition(" ")
    values = {**their.values, "queue": attempt.queue, "job_id": job}
    return service.http.request(
        method,
        path.format(**values),
        headers=as_tenant(OURS),
        json=attempt.json(their) if attempt.json else None,
        params=attempt.params(their) if attempt.params else None,
        files=[("files", ("a.txt", b"ours"))] if attempt.files else None,
    )


def test_every_route_is_in_the_table(guarded: Service) -> None:
    assert routes_of(guarded.web) == {*TABLE, *OPEN}


def test_no_route_shows_or_changes_what_is_anothers(guarded: Service, theirs: Belongings) -> None:
    before = snapshot(guarded)
    assert {row[0] for row in before} >= {"nodes", "texts", "embeddings", "work_items", "runs"}

    for route, attempts_at in TABLE.items():
        for attempt in attempts_at:
            for job in (theirs.dead_job, theirs.active_job):
                response = make(guarded, route, attempt, theirs, job)
                told = f"{route}: {response.status_code} {response.text}"
                assert response.status_code == attempt.status, told
                assert WORD not in response.text.replace(f'"query":"{WORD}"', ""), told
                if "json" in response.headers["content-type"]:
                    assert attempt.fine(response.json()), told
                assert snapshot(guarded) == before, told


def test_nobody_may_say_that_they_are_another(guarded: Service, theirs: Belongings) -> None:
    before = snapshot(guarded)

    for route in TABLE:
        if route in ("GET /metrics", "POST /upload"):
            continue
        method, _, path = route.partition(" ")
        values = {**theirs.values, "queue": "extraction"}
        body: dict[str, Any] = {"tenant_id": THEIRS}
        if path == "/nodes/batch":
            body["nodes"] = [{}]
        if route == "POST /runs":
            body["source"] = "their-folder"
        if route == "POST /extraction-jobs":
            body["node_id"] = theirs.node
        response = guarded.http.request(
            method,
            path.format(**values),
            headers=as_tenant(OURS),
            params={"tenant_id": THEIRS, "q": "a"},
            json=body if method == "POST" else None,
        )
        assert response.status_code == 403, f"{route}: {response.text}"
    assert snapshot(guarded) == before


def test_the_other_tenant_sees_all_of_it(guarded: Service, theirs: Belongings) -> None:
    headers = as_tenant(THEIRS)
    for path in (
        f"/nodes/{theirs.node}",
        f"/extraction-jobs/{theirs.dead_job}",
        f"/runs/{theirs.run}/logs",
        f"/search?q={WORD}",
        "/admin/extraction/dlq",
    ):
        response = guarded.http.get(path, headers=headers)
        assert response.status_code == 200
        assert WORD in response.text, path


def figures(service: Service, headers: dict[str, str]) -> dict[tuple[str, ...], float]:
    response = service.http.get("/metrics", headers=headers)
    assert response.status_code == 200, response.text
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def test_figures_are_those_of_the_tenant_that_asks(guarded: Service, theirs: Belongings) -> None:
    with guarded.database.write() as tx:
        call = {
            "tenant_id": THEIRS,
            "node_id": theirs.node,
            "model": WORD,
            "outcome": "ok",
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "seconds": 0.5,
            "cost_usd": 0.25,
            "called_at": tx.now,
        }
        tx.execute(sa.insert(model_calls).values(call))
        tx.execute(sa.update(extractions).values(fallback_reason="invalid"))

    ours = figures(guarded, as_tenant(OURS, "admin:refresh"))
    assert set(ours.values()) == {0.0}
    assert {name for name, *_ in ours}.isdisjoint(
        {"penstock_workers", "penstock_items_completed_total", "penstock_failed_attempts_total"}
    )
    assert not any(WORD in labels for labels in ours)

    for seen in (
        figures(guarded, as_tenant(THEIRS, "admin:refresh")),
        figures(guarded, as_tenant(OURS, "admin:metrics")),
    ):
        assert seen["penstock_queue_dlq", "extraction"] == 1
        assert seen["penstock_queue_depth", "extraction"] == 1
        assert seen["penstock_active_runs",] == 1
        assert seen["penstock_fallback_rate",] == 1
        assert seen["penstock_model_cost_usd_total", "ok", WORD] == 0.25

    everything = figures(guarded, as_tenant(OURS, "admin:metrics"))
    assert everything["penstock_failed_attempts_total", "timeout"] == 2
    assert everything["penstock_items_completed_total",] > 0


def test_figures_of_all_open_nothing_else(guarded: Service, theirs: Belongings) -> None:
    headers = as_tenant(THEIRS, "admin:metrics")

    for path in (f"/nodes/{theirs.node}", "/admin/extraction/dlq", "/runs"):
        assert guarded.http.get(path, headers=headers).status_code == 403
