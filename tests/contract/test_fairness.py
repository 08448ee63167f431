"""Tenants take turns: a tenant with much work does not keep one with little waiting."""

from collections import Counter

import pytest

from penstock.documents import Stage
from penstock.store.database import Database
from tests.factories import Desk, make_item
from tests.together import run_together

pytestmark = pytest.mark.both_databases


@pytest.fixture
def desk(database: Database) -> Desk:
    return Desk(database)


def enqueue(desk: Desk, tenant_id: str, count: int, priority: int = 0) -> None:
    desk.enqueue(*[make_item(tenant_id=tenant_id, priority=priority) for _ in range(count)])


def tenants_of(desk: Desk, limit: int = 50) -> Counter[str]:
    return Counter(item.tenant_id for item in desk.claim(limit=limit).items)


@pytest.mark.full_suite
def test_one_job_behind_ten_thousand_of_another_tenant_is_in_the_next_batch(desk: Desk) -> None:
    enqueue(desk, "large", 10_000)
    enqueue(desk, "small", 1)
    assert tenants_of(desk) == {"large": 49, "small": 1}
    assert tenants_of(desk) == {"large": 50}


def test_a_batch_is_shared_out_evenly_and_is_full(desk: Desk) -> None:
    for tenant in ("a", "b", "c"):
        enqueue(desk, tenant, 100)
    shares = tenants_of(desk, limit=30)
    assert shares == {"a": 10, "b": 10, "c": 10}


def test_what_one_tenant_leaves_over_goes_to_the_others(desk: Desk) -> None:
    enqueue(desk, "a", 2)
    enqueue(desk, "b", 100)
    enqueue(desk, "c", 100)
    shares = tenants_of(desk, limit=30)
    assert shares["a"] == 2
    assert sum(shares.values()) >= 29
    assert abs(shares["b"] - shares["c"]) <= 1


def test_with_more_tenants_than_fit_each_gets_its_turn(desk: Desk) -> None:
    for number in range(40):
        enqueue(desk, f"tenant {number}", 5)
    claimed: Counter[str] = Counter()
    for _ in range(20):
        claimed += tenants_of(desk, limit=10)
    assert claimed == {f"tenant {number}": 5 for number in range(40)}


def test_priority_comes_before_turns(desk: Desk) -> None:
    enqueue(desk, "patient", 10)
    enqueue(desk, "urgent", 20, priority=5)
    assert tenants_of(desk, limit=15) == {"urgent": 15}
    assert tenants_of(desk, limit=15) == {"urgent": 5}
    assert tenants_of(desk, limit=15) == {"patient": 10}


def test_the_oldest_of_a_tenant_comes_first(desk: Desk) -> None:
    enqueue(desk, "a", 3)
    enqueue(desk, "b", 3)
    first = desk.claim(limit=2)
    second = desk.claim(limit=4)
    for tenant in ("a", "b"):
        oldest = [item.id for item in first.items if item.tenant_id == tenant]
        rest = [item.id for item in second.items if item.tenant_id == tenant]
        assert max(oldest) < min(rest)


def test_tenants_whose_work_is_not_due_or_of_other_stages_take_no_share(desk: Desk) -> None:
    enqueue(desk, "a", 4)
    desk.enqueue(*[make_item(stage=Stage.EMBED, tenant_id="b") for _ in range(4)])
    claim = desk.claim(stages=(Stage.TEXT,), limit=4)
    assert {item.tenant_id for item in claim.items} == {"a"}
    assert len(claim.items) == 4


def test_rescued_jobs_of_one_tenant_do_not_hold_up_the_others(desk: Desk) -> None:
    """They are taken in halves, without any others: so many batches would go before."""
    enqueue(desk, "a", 30)
    desk.start(desk.claim(limit=30))
    desk.later(61).sweep()
    enqueue(desk, "b", 4)
    batches = [tenants_of(desk) for _ in range(6)]
    assert sorted(map(str, batches)) == sorted(
        str(Counter(one)) for one in ({"a": 15}, {"a": 8}, {"a": 4}, {"a": 2}, {"a": 1}, {"b": 4})
    )


def test_workers_at_once_claim_nothing_twice_and_leave_nothing(desk: Desk) -> None:
    for number in range(5):
        enqueue(desk, f"tenant {number}", 40)

    def work(number: int) -> list[int]:
        taken: list[int] = []
        while claim := desk.claim(f"worker {number}", limit=7):
            taken += claim.ids
        return taken

    taken = [one for ids in run_together(4, work) for one in ids]
    left = desk.claim("the last", limit=500)
    assert len(set(taken)) == len(taken)
    assert len(taken) + len(left.items) == 200
