"""Nodes that arrive at the same time are accepted together, each with its own answer."""

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.app import App, open_app
from penstock.errors import Overloaded, UsageError
from penstock.intake.intake import GroupCommit
from penstock.intake.nodes import Accepted, NewNode
from penstock.settings import EmbeddingSettings, load_settings
from penstock.store.database import Database
from penstock.store.schema import nodes, work_items
from tests.together import run_together

LIMIT = 40


@pytest.fixture
def app(database: Database, tmp_path: Path) -> Iterator[App]:
    embedding = EmbeddingSettings(backend="hash", queue_max_depth=LIMIT, tenant_max_pending=LIMIT)
    settings = load_settings(dsn=database.url, home=tmp_path / "home", embedding=embedding)
    with open_app(settings) as app:
        yield app


def count(app: App, table: sa.Table) -> int:
    with app.database.read() as tx:
        return int(tx.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def text(number: int) -> NewNode:
    return NewNode(props={"text": f"document {number}"})


def outcome(future: "Future[Accepted]") -> Accepted | Exception:
    error = future.exception(timeout=60)
    return future.result() if error is None else error  # type: ignore[return-value]


def test_every_caller_gets_the_answer_to_its_own_node(app: App) -> None:
    with GroupCommit(app.intake) as gathering:
        accepted = run_together(
            LIMIT, lambda number: gathering.submit("acme", text(number)).result(timeout=60)
        )
    assert len({one.id for one in accepted}) == LIMIT
    with app.database.read() as tx:
        rows = tx.execute(sa.select(nodes.c.id, nodes.c.given))
        given = {row.id: row.given for row in rows}
        jobs = set(tx.execute(sa.select(work_items.c.id)).scalars())
    texts = [given[one.id]["props"]["text"] for one in accepted]
    assert texts == [f"document {number}" for number in range(LIMIT)]
    assert {one.job_id for one in accepted} == jobs


def test_an_invalid_node_does_not_affect_the_others(app: App) -> None:
    gathering = GroupCommit(app.intake)
    wrong = NewNode(props={"text": "x"}, profile="moon")
    futures = [gathering.submit("acme", node) for node in (text(1), wrong, text(2))]
    with gathering:
        found = [outcome(future) for future in futures]
    assert isinstance(found[1], UsageError)
    assert [isinstance(one, Accepted) for one in found] == [True, False, True]
    assert count(app, nodes) == 2


def test_as_many_nodes_are_accepted_as_there_is_room_for(app: App) -> None:
    gathering = GroupCommit(app.intake)
    futures = [gathering.submit("acme", text(number)) for number in range(LIMIT + 10)]
    with gathering:
        found = [outcome(future) for future in futures]
    assert sum(isinstance(one, Accepted) for one in found) == LIMIT
    assert sum(isinstance(one, Overloaded) for one in found) == 10
    assert count(app, nodes) == count(app, work_items) == LIMIT


def test_tenants_and_keys_are_kept_apart(app: App) -> None:
    gathering = GroupCommit(app.intake)
    futures = [
        gathering.submit("acme", text(1)),
        gathering.submit("other", text(1)),
        gathering.submit("acme", text(2), "key"),
        gathering.submit("acme", text(2), "key"),
    ]
    with gathering:
        found = [future.result(timeout=60) for future in futures]
    assert found[2] == found[3]
    assert len({one.id for one in found}) == 3
    with app.database.read() as tx:
        tenants = sorted(tx.execute(sa.select(nodes.c.tenant_id)).scalars())
    assert tenants == ["acme", "acme", "other"]


def test_what_was_submitted_before_the_end_is_accepted(app: App) -> None:
    gathering = GroupCommit(app.intake)
    with gathering:
        futures = [gathering.submit("acme", text(number)) for number in range(20)]
    assert all(future.done() for future in futures)
    assert count(app, nodes) == 20
