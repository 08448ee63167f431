"""The HTTP API on a database, with workers that come when they are called."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import sqlalchemy as sa
from fastapi.testclient import TestClient

from entrypoints.api.app import create_app
from penstock.app import App
from penstock.documents import Stage
from penstock.pipeline.steps import Steps
from penstock.queue.retry import FixedDelays as Delays
from penstock.queue.retry import RetryRule
from penstock.rules import RulesExtractor
from penstock.settings import EmbeddingSettings, ExtractionSettings, load_settings
from penstock.store.database import Database
from penstock.store.schema import embeddings, nodes, texts, work_items
from tests.contract.ingestion import BUDGETS, ScriptedSteps

EVERYTHING = (nodes, texts, embeddings, work_items)
RESUME = (
    "Ada Park\nData Engineer\n\nAda Park has 8 years of experience as a Data Engineer and looks "
    "after sluice gates with Python, PostgreSQL and Kubernetes. She works in hydropower.\n"
)


class Service:
    """Requests, workers and a look at the store behind them.

    Retries come at once, and the rules extract in this process, as in any other workplace.
    """

    def __init__(
        self,
        database: Database,
        home: Path,
        *,
        extraction: Mapping[str, Any] | None = None,
        embedding: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.settings = load_settings(
            home=home,
            dsn=database.url,
            text_processes=1,
            heartbeat_seconds=20,
            extraction=ExtractionSettings(**extraction or {}),
            # By its alias, since that is how the environment names it.
            embedding=EmbeddingSettings(**{"backend": "hash", **(embedding or {})}),
            **settings,
        )
        self.database = database
        self.web = create_app(self.settings)
        self.http = TestClient(self.web, base_url="http://127.0.0.1")

    def __enter__(self) -> Self:
        self.http.__enter__()
        self.app: App = self.web.state.penstock
        quick = {stage: RetryRule(budget, Delays((0.01,))) for stage, budget in BUDGETS.items()}
        self.app.queue = replace(self.app.queue, rules=quick)
        self.app.extractor = RulesExtractor()
        self.steps = ScriptedSteps(self.app)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.http.__exit__(kind, error, trace)

    def get(self, path: str, status: int = 200, /, **params: Any) -> Any:
        return answer_of(self.http.get(path, params=params), status)

    def post(self, path: str, body: Any = None, status: int = 200, **options: Any) -> Any:
        return answer_of(self.http.post(path, json=body, **options), status)

    def delete(self, path: str, status: int = 204, /, **params: Any) -> Any:
        return answer_of(self.http.delete(path, params=params), status)

    def add(self, text: str = RESUME, **body: Any) -> dict[str, Any]:
        """A node with this text, as it was answered."""
        answer: dict[str, Any] = self.post("/nodes", {"props": {"text": text}, **body})
        return answer

    def node(self, node_id: str, **params: Any) -> dict[str, Any]:
        shown: dict[str, Any] = self.get(f"/nodes/{node_id}", **params)
        return shown

    def find(self, words: str, **params: Any) -> list[str]:
        """The ids of what a search finds, best first."""
        return [hit["id"] for hit in self.get("/search", q=words, **params)["hits"]]

    def work(self, steps: Steps | None = None, stages: Sequence[Stage] = tuple(Stage)) -> None:
        """Work until nothing is left, as a worker does."""
        with self.app.heartbeat() as heartbeat:
            processor = self.app.processor(steps or self.steps, stages)
            drain = self.app.worker(processor, heartbeat)
            drain.poll_seconds = 0.01
            drain.run(lambda: True)

    def items(self, *conditions: sa.ColumnElement[bool]) -> list[sa.Row[Any]]:
        """Work items, oldest first."""
        query = sa.select(work_items).where(*conditions).order_by(work_items.c.id)
        with self.database.read() as tx:
            return list(tx.execute(query))

    def count(self, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
        query = sa.select(sa.func.count()).select_from(table).where(*conditions)
        with self.database.read() as tx:
            return int(tx.execute(query).scalar_one())

    def raw_files(self) -> list[Path]:
        """What the raw store keeps."""
        return sorted(path for path in (self.settings.home / "raw").rglob("*") if path.is_file())


class MakeService(Protocol):
    """Builds services that end with the test."""

    def __call__(self, **settings: Any) -> Service: ...


def answer_of(response: Any, status: int = 200) -> Any:
    """The body of an answer that has this status."""
    assert response.status_code == status, response.text
    if status >= 400:
        return problem_of(response, status)
    return response.json() if response.content else None


def problem_of(response: Any, status: int) -> dict[str, Any]:
    """The problem document of an error that has this status."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert set(problem) >= {"type", "title", "status", "detail"}
    assert problem["status"] == status
    assert len(problem["detail"].split()) > 2, "a detail is a sentence"
    if status in (429, 503):
        assert int(response.headers["retry-after"]) >= 1
    return problem
