"""What a dashboard reads of jobs: all that was tried with a node, and whose work waits."""

from typing import Any

import pytest

from penstock.documents import Stage
from penstock.errors import ErrorClass, NotFound
from penstock.operations.jobs import show_job
from penstock.operations.nodes import MOST_JOBS, node_history
from penstock.operations.status import (
    StageFigures,
    TenantBacklog,
    known_tenants,
    stage_figures,
    waiting_by_tenant,
)
from penstock.store.database import Database, new_node_id
from tests.factories import TENANT, Desk, add_source, at, make_fault, make_item

pytestmark = pytest.mark.both_databases


@pytest.fixture
def desk(database: Database) -> Desk:
    return Desk(database)


def history(desk: Desk, node_id: str, tenant_id: str = TENANT) -> list[dict[str, Any]]:
    with desk.database.read() as tx:
        return node_history(tx, tenant_id, node_id)


def work(desk: Desk, ids: list[int]) -> None:
    claim = desk.claim(only=ids)
    desk.start(claim)
    desk.later(1)
    desk.complete(claim)


# A node's history


def test_the_jobs_of_a_node_are_listed_newest_first_with_their_histories(desk: Desk) -> None:
    node_id = new_node_id()
    (text,) = desk.enqueue(make_item(node_id, Stage.TEXT))
    (embed,) = desk.enqueue(make_item(node_id, Stage.EMBED))
    desk.enqueue(make_item(new_node_id()))
    desk.fail(desk.claim(only=[text]), make_fault())
    desk.later(3600)
    desk.fail(desk.claim(only=[text]), make_fault(ErrorClass.CORRUPTION, "it is broken"))

    found = history(desk, node_id)

    assert [job["id"] for job in found] == [embed, text]
    assert found[0]["history"] == []
    assert [one["message"] for one in found[1]["history"]] == ["it took too long", "it is broken"]
    with desk.database.read() as tx:
        assert found == [show_job(tx, TENANT, job["id"]) for job in found]


def test_a_nodes_history_is_its_tenants_alone(desk: Desk) -> None:
    node_id = new_node_id()
    desk.enqueue(make_item(node_id))
    assert history(desk, node_id, "globex") == history(desk, new_node_id()) == []
    with pytest.raises(NotFound):
        history(desk, "nonsense")


def test_of_a_long_history_the_newest_jobs_are_listed(desk: Desk) -> None:
    node_id = new_node_id()
    for _ in range(MOST_JOBS + 1):
        ids = desk.enqueue(make_item(node_id))
        desk.cancel()
    found = history(desk, node_id)
    assert (len(found), found[0]["id"]) == (MOST_JOBS, ids[0])


# Tenants


def test_backlogs_are_listed_by_tenant_the_longest_first(desk: Desk) -> None:
    desk.enqueue(make_item(tenant_id="globex"), make_item(tenant_id="globex", stage=Stage.EMBED))
    desk.later(60)
    ours = desk.enqueue(*[make_item() for _ in range(6)])
    desk.fail(desk.claim(only=ours[:1]), make_fault())
    desk.claim(only=ours[1:3])
    work(desk, desk.enqueue(make_item(tenant_id="initech")))
    desk.enqueue(make_item(tenant_id="hooli", priority=-10))

    with at(desk.database, 90) as tx:
        found = waiting_by_tenant(tx)
        assert waiting_by_tenant(tx, limit=1) == found[:1]
    assert found == [
        TenantBacklog(TENANT, 3, 1, 2, 30.0),
        TenantBacklog("globex", 2, 0, 0, 90.0),
        TenantBacklog("hooli", 1, 0, 0, 0.0),
    ]


def test_tenants_are_known_by_their_sources(database: Database) -> None:
    with database.write() as tx:
        for name, tenant_id in (("a", "globex"), ("a", TENANT), ("b", "globex")):
            add_source(tx, name, tenant_id)
        assert known_tenants(tx) == [TENANT, "globex"]


# Figures of a stage


def figures(desk: Desk, tenant_id: str | None, stage: Stage = Stage.TEXT) -> StageFigures:
    with at(desk.database, desk.second) as tx:
        return stage_figures(tx, stage, tenant_id)


def test_figures_of_a_stage_are_those_of_one_tenant_or_of_all(desk: Desk) -> None:
    def item(tenant_id: str) -> list[int]:
        return desk.enqueue(make_item(tenant_id=tenant_id))

    work(desk, item(TENANT))
    desk.fail(desk.claim(only=item(TENANT)), make_fault())
    desk.fail(desk.claim(only=item(TENANT)), make_fault(ErrorClass.CORRUPTION, "it is broken"))
    desk.claim(only=item(TENANT))
    item(TENANT)
    desk.later(10)
    item("globex")
    desk.later(10)

    quiet = {0.5: 0.0, 0.95: 0.0, 0.99: 0.0}
    slow = {0.5: 1.0, 0.95: 1.0, 0.99: 1.0}
    assert figures(desk, TENANT) == StageFigures(1, 1, 1, 1, 20.0, 1 / 60, slow)
    assert figures(desk, "globex") == StageFigures(1, 0, 0, 0, 10.0, 0.0, quiet)
    assert figures(desk, None) == StageFigures(2, 1, 1, 1, 20.0, 1 / 60, slow)
    assert figures(desk, TENANT, Stage.EMBED) == StageFigures(0, 0, 0, 0, 0.0, 0.0, quiet)
