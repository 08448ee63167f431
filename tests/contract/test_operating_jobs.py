"""What operators do to jobs, many at once, and what they see of jobs and workers under way."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.documents import Stage
from penstock.errors import ErrorClass, UsageError
from penstock.operations.jobs import (
    MOST_JOBS,
    Bulk,
    JobFilter,
    cancel_jobs,
    list_jobs,
    retry_jobs,
)
from penstock.operations.status import count_processing, list_workers, stuck_jobs
from penstock.queue.heartbeat import Heartbeat
from penstock.queue.items import Claim, ItemStatus, Outcome
from penstock.store.database import Database, Tx
from penstock.store.schema import attempts, events, nodes, runs, work_items, workers
from tests.contract.ingestion import Workplace, counts, make_text
from tests.factories import (
    NOON,
    TENANT,
    Desk,
    add_node,
    at,
    make_fault,
    make_item,
    read_node,
    read_rows,
    somebody_waits,
)
from tests.together import run_together, wait_until

OURS = JobFilter(TENANT)
RETRIED = "Job was manually retried."


@pytest.fixture
def desk(database: Database) -> Desk:
    return Desk(database)


@pytest.fixture
def workplace(database: Database, tmp_path: Path) -> Iterator[Workplace]:
    workplace = Workplace(database, tmp_path)
    yield workplace
    workplace.close()


def retry(desk: Desk, wanted: JobFilter = OURS, **chosen: Any) -> Bulk:
    return retry_jobs(desk.database, desk.queue, wanted, **chosen)


def cancel(desk: Desk, wanted: JobFilter = OURS, **chosen: Any) -> Bulk:
    return cancel_jobs(desk.database, desk.queue, wanted, **chosen)


def statuses(desk: Desk) -> dict[int, str]:
    return {job_id: row.status for job_id, row in desk.rows().items()}


def one_of_each(desk: Desk, **values: Any) -> dict[str, int]:
    """A job in every status there is."""
    ids = {
        status.value: desk.enqueue(make_item(stage=Stage.EMBED, **values))[0]
        for status in ItemStatus
    }
    desk.fail(hold(desk, ids["retry_pending"]), make_fault())
    desk.fail(hold(desk, ids["failed"]), make_fault(ErrorClass.CORRUPTION, "it is broken"))
    desk.complete(hold(desk, ids["complete"]))
    desk.cancel(work_items.c.id == ids["cancelled"])
    hold(desk, ids["processing"])
    assert statuses(desk).items() >= {number: name for name, number in ids.items()}.items()
    return ids


def hold(desk: Desk, *ids: int, owner: str = "worker") -> Claim:
    """A worker that has begun with these."""
    claim = desk.claim(owner, only=ids)
    assert sorted(claim.ids) == sorted(ids)
    desk.start(claim)
    return claim


def kill(desk: Desk, *ids: int, kind: ErrorClass = ErrorClass.CORRUPTION) -> None:
    """Have these fail for good."""
    desk.fail(hold(desk, *ids), make_fault(kind, "it is broken"))


# Retrying many


def test_of_all_that_are_named_those_processing_or_failed_are_retried(desk: Desk) -> None:
    ids = one_of_each(desk)
    before = statuses(desk)

    done = retry(desk, ids=list(ids.values()))

    assert (done.requested, done.done) == (6, 2)
    refused = {ids[name]: name for name in ("pending", "retry_pending", "complete", "cancelled")}
    assert set(done.refused) == set(refused)
    for job_id, status in refused.items():
        assert f"job {job_id} is {status}" in done.refused[job_id]
    changed = {ids["processing"]: "pending", ids["failed"]: "pending"}
    assert statuses(desk) == before | changed


def test_a_retried_job_has_full_budgets_a_note_and_its_history(desk: Desk) -> None:
    ids = one_of_each(desk)
    history = read_rows(desk.database, attempts)

    retry(desk, ids=[ids["failed"], ids["processing"]])

    dead, live = desk.row(ids["failed"]), desk.row(ids["processing"])
    assert dead.error_message == f"it is broken\n\n{RETRIED}"
    assert live.error_message == RETRIED
    for row in (dead, live):
        assert (row.attempts, row.rescues, row.lease_token, row.started_at) == (0, 0, None, None)
    assert read_rows(desk.database, attempts) == history
    assert history


def test_jobs_of_others_and_jobs_that_are_not_there_are_refused_alike(desk: Desk) -> None:
    [theirs] = desk.enqueue(make_item(tenant_id="globex"))
    hold(desk, theirs)
    before = read_rows(desk.database, work_items)

    for act in (retry, cancel):
        done = act(desk, ids=[theirs, 4711])
        assert done.refused == {number: f"there is no job {number}" for number in (theirs, 4711)}
        assert (done.requested, done.done) == (2, 0)
    assert read_rows(desk.database, work_items) == before


def test_a_worker_whose_jobs_were_retried_writes_nothing_any_more(desk: Desk) -> None:
    with at(desk.database) as tx:
        node_ids = [add_node(tx) for _ in range(3)]
    ids = desk.enqueue(*[make_item(node_id, Stage.EMBED) for node_id in node_ids])
    claim = hold(desk, *ids)

    assert retry(desk, ids=ids).done == 3

    after = read_rows(desk.database, work_items, nodes, attempts)
    assert desk.complete(claim) == []
    assert desk.fail(claim, make_fault()) == []
    assert desk.go_on(claim, Stage.EXTRACT).items == ()
    assert desk.release(claim) == 0
    assert read_rows(desk.database, work_items, nodes, attempts) == after
    assert {read_node(desk.database, one).embedding_status for one in node_ids} == {"queued"}
    assert sorted(desk.claim("another").ids) == ids


def test_of_two_dead_jobs_of_one_node_and_stage_the_newer_is_retried(desk: Desk) -> None:
    item = make_item()
    [older] = desk.enqueue(item)
    kill(desk, older)
    [newer] = desk.enqueue(item)
    kill(desk, newer)

    done = retry(desk, ids=[older, newer])

    assert list(done.refused) == [older]
    assert "successor" in done.refused[older]
    assert statuses(desk) == {older: "failed", newer: "pending"}


def test_a_job_that_is_named_twice_is_one_job(desk: Desk) -> None:
    [job_id] = desk.enqueue(make_item())
    hold(desk, job_id)

    assert retry(desk, ids=[job_id, job_id]) == Bulk(requested=1)
    assert desk.row(job_id).error_message == RETRIED


def test_two_requests_that_retry_the_same_jobs_retry_each_once(desk: Desk) -> None:
    ids = desk.enqueue(*[make_item() for _ in range(30)])
    kill(desk, *ids)

    answers = run_together(4, lambda _: retry(desk, ids=ids))

    assert sum(answer.done for answer in answers) == len(ids)
    assert {row.error_message for row in desk.rows().values()} == {f"it is broken\n\n{RETRIED}"}


def meanwhile(desk: Desk, change: Callable[[Tx], object], act: Callable[[], Bulk]) -> Bulk:
    """What comes of it while somebody else's change is made, and not yet committed."""
    with ThreadPoolExecutor(1) as pool:
        with at(desk.database, desk.second) as tx:
            change(tx)
            answer = pool.submit(act)
            wait_until(lambda: somebody_waits(desk.database))
        return answer.result(timeout=60)


@pytest.mark.parametrize("act", [retry, cancel])
def test_what_its_worker_is_just_completing_is_refused(desk: Desk, act: Any) -> None:
    ids = desk.enqueue(make_item(), make_item())
    claim = hold(desk, *ids)
    first, second = [replace(claim, items=(item,)) for item in claim.items]

    done = meanwhile(
        desk,
        lambda tx: desk.queue.complete(tx, first, first.items, Outcome.DONE),
        lambda: act(desk, ids=ids),
    )

    assert done.done == 1
    assert f"job {first.ids[0]} is complete" in done.refused[first.ids[0]]
    assert desk.row(first.ids[0]).status == "complete"
    assert desk.row(second.ids[0]).status != "processing"


def test_what_a_worker_has_just_begun_is_not_retried_as_failed(desk: Desk) -> None:
    [job_id] = desk.enqueue(make_item())
    kill(desk, job_id)

    def revive(tx: Tx) -> None:
        desk.queue.requeue(tx, note="Requeued.")
        assert desk.queue.claim(tx, "worker").ids == [job_id]

    failed = replace(OURS, status=ItemStatus.FAILED)

    assert meanwhile(desk, revive, lambda: retry(desk, failed)) == Bulk()
    assert desk.row(job_id).status == "processing"


# Choosing by a filter


def fill(desk: Desk) -> None:
    """Dead jobs that differ in one thing each."""
    with at(desk.database) as tx:
        nodes_of = [add_node(tx) for _ in range(3)]
    text = desk.enqueue(*[make_item(node_id) for node_id in nodes_of])
    extract = desk.enqueue(make_item(nodes_of[0], Stage.EXTRACT, run_id=7))
    theirs = desk.enqueue(make_item(tenant_id="globex"))
    kill(desk, *text[:2], *theirs)
    kill(desk, text[2], *extract, kind=ErrorClass.TOO_LARGE)


@pytest.mark.parametrize(
    "chosen",
    [
        {"stages": (Stage.TEXT,)},
        {"stages": (Stage.EXTRACT,)},
        {"status": ItemStatus.FAILED},
        {"run_id": 7},
        {"error_class": "too_large"},
        {"error_class": "timeout"},
        {"stages": (Stage.TEXT,), "error_class": "too_large"},
    ],
)
def test_a_filter_takes_what_a_listing_of_it_shows(desk: Desk, chosen: dict[str, Any]) -> None:
    fill(desk)
    wanted = replace(OURS, **chosen)
    with desk.database.read() as tx:
        listed = [job["id"] for job in list_jobs(tx, wanted, 100)]

    done = retry(desk, wanted)

    assert (done.requested, done.refused) == (len(listed), {})
    retried = [number for number, status in statuses(desk).items() if status == "pending"]
    assert sorted(retried) == sorted(listed)


@pytest.mark.both_databases
@pytest.mark.parametrize("priorities", [3, 30])
def test_pages_show_every_job_once_whatever_priority_it_has(desk: Desk, priorities: int) -> None:
    one_of_each(desk)
    stages = tuple(Stage)
    for number in range(30):
        stage, priority = stages[number % 3], number * 7 % priorities - 1
        desk.enqueue(make_item(stage=stage, priority=priority))
    desk.enqueue(make_item(tenant_id="globex"))
    rows = [row for _, row in sorted(desk.rows().items(), reverse=True) if row.tenant_id == TENANT]

    for status in (None, *ItemStatus):
        for chosen in ((), (Stage.TEXT, Stage.EMBED)):
            wanted = JobFilter(TENANT, status=status, stages=chosen)
            assert paged(desk, wanted) == [
                row.id
                for row in rows
                if status in (None, row.status) and (not chosen or row.stage in chosen)
            ]


def paged(desk: Desk, wanted: JobFilter) -> list[int]:
    """The ids of all jobs that a filter finds, read in pages of four."""
    found: list[int] = []
    while True:
        before = found[-1] if found else None
        with desk.database.read() as tx:
            page = [job["id"] for job in list_jobs(tx, replace(wanted, before=before), 4)]
        if not page:
            return found
        found += page


def test_a_filter_by_node_takes_its_jobs_of_every_stage(desk: Desk) -> None:
    fill(desk)
    node_id = next(row.node_id for row in desk.rows().values() if row.run_id == 7)

    assert retry(desk, replace(OURS, node_id=node_id)).done == 2
    assert sorted(r.stage for r in desk.rows().values() if r.status == "pending") == [
        "extract",
        "text",
    ]


def test_without_a_status_what_workers_are_at_is_not_retried(desk: Desk) -> None:
    ids = one_of_each(desk)

    assert retry(desk, replace(OURS, stages=(Stage.EMBED,))) == Bulk(requested=1)
    assert desk.row(ids["failed"]).status == "pending"
    assert desk.row(ids["processing"]).status == "processing"
    assert retry(desk, replace(OURS, status=ItemStatus.PROCESSING)) == Bulk(requested=1)
    assert desk.row(ids["processing"]).status == "pending"


def test_without_a_status_what_has_ended_is_not_cancelled(desk: Desk) -> None:
    ids = one_of_each(desk)

    assert cancel(desk, replace(OURS, stages=(Stage.EMBED,))) == Bulk(requested=3)
    assert desk.row(ids["complete"]).status == "complete"
    assert desk.row(ids["failed"]).status == "failed"


def test_a_status_that_cannot_be_retried_is_refused_job_by_job(desk: Desk) -> None:
    ids = one_of_each(desk)

    done = retry(desk, replace(OURS, status=ItemStatus.PENDING))

    assert (done.requested, list(done.refused)) == (1, [ids["pending"]])


def test_of_named_jobs_a_filter_takes_those_it_finds(desk: Desk) -> None:
    ids = one_of_each(desk)
    wanted = replace(OURS, status=ItemStatus.FAILED)

    done = retry(desk, wanted, ids=[ids["processing"], ids["failed"], 4711])

    assert done.done == 1
    assert done.refused == {
        ids["processing"]: f"job {ids['processing']} is not one that the filter finds",
        4711: "there is no job 4711",
    }
    assert desk.row(ids["processing"]).status == "processing"


def test_a_filter_takes_the_newest_page_by_page(desk: Desk) -> None:
    ids = desk.enqueue(*[make_item() for _ in range(5)])
    wanted = replace(OURS, stages=(Stage.TEXT,))
    pages = []

    while True:
        done = cancel(desk, wanted, limit=2)
        pages.append([number for number in ids if statuses(desk)[number] == "cancelled"])
        if done.next_before is None:
            break
        wanted = replace(wanted, before=done.next_before)

    assert pages == [ids[3:], ids[1:], ids]
    assert cancel(desk, replace(OURS, stages=(Stage.TEXT,))).requested == 0


@pytest.mark.full_suite
def test_one_request_takes_two_thousand_at_most(desk: Desk) -> None:
    ids = desk.enqueue(*[make_item() for _ in range(MOST_JOBS + 1)])
    with at(desk.database) as tx:
        tx.execute(sa.update(work_items).values(status=ItemStatus.FAILED))
    failed = replace(OURS, status=ItemStatus.FAILED)

    assert retry(desk, failed, limit=10**9).done == MOST_JOBS
    assert statuses(desk)[ids[0]] == "failed", "the newest are taken first"
    with pytest.raises(UsageError, match="2001"):
        cancel(desk, ids=ids)
    assert cancel(desk, ids=ids[1:]).done == MOST_JOBS
    assert sorted(set(statuses(desk).values())) == ["cancelled", "failed"]


@pytest.mark.parametrize("act", [retry, cancel])
def test_all_jobs_at_once_are_never_meant(desk: Desk, act: Any) -> None:
    one_of_each(desk)
    before = read_rows(desk.database, work_items)

    with pytest.raises(UsageError, match="say which jobs"):
        act(desk)
    with pytest.raises(UsageError, match="say which jobs"):
        act(desk, replace(OURS, before=4711))
    assert act(desk, ids=[]) == Bulk()
    assert act(desk, replace(OURS, status=ItemStatus.PROCESSING), limit=0) == Bulk()
    assert read_rows(desk.database, work_items) == before


# Cancelling many


def test_of_all_that_are_named_those_that_have_not_ended_are_cancelled(desk: Desk) -> None:
    ids = one_of_each(desk)
    before = statuses(desk)

    done = cancel(desk, ids=list(ids.values()))

    assert (done.requested, done.done) == (6, 3)
    for status in ("complete", "failed", "cancelled"):
        assert f"is {status} already" in done.refused[ids[status]]
    changed = {ids[name]: "cancelled" for name in ("pending", "processing", "retry_pending")}
    assert statuses(desk) == before | changed


def test_a_worker_whose_jobs_were_cancelled_writes_nothing_any_more(desk: Desk) -> None:
    ids = desk.enqueue(make_item(), make_item())
    claim = hold(desk, *ids)

    assert cancel(desk, ids=ids).done == 2

    after = read_rows(desk.database, work_items, attempts)
    assert desk.complete(claim) == []
    assert desk.fail(claim, make_fault()) == []
    assert read_rows(desk.database, work_items, attempts) == after


def test_nodes_wait_for_cancelled_jobs_no_longer_unless_others_are_under_way(desk: Desk) -> None:
    with at(desk.database) as tx:
        waits = {"extraction_status": "queued", "embedding_status": "pending_extraction"}
        alone, before, beside = (
            add_node(tx, **waits),
            add_node(tx, **waits, embedded_at=tx.now),
            add_node(tx, extraction_status="queued", embedding_status="queued"),
        )
    extracts = desk.enqueue(*[make_item(one, Stage.EXTRACT) for one in (alone, before, beside)])
    desk.enqueue(make_item(beside, Stage.EMBED))

    assert cancel(desk, ids=extracts).done == 3

    shown = {
        node_id: (row.extraction_status, row.embedding_status)
        for node_id in (alone, before, beside)
        for row in [read_node(desk.database, node_id)]
    }
    assert shown == {alone: (None, None), before: (None, "ready"), beside: (None, "queued")}


def admit(workplace: Workplace, *names: str) -> int:
    """A run whose documents wait; its id."""
    for name in names:
        workplace.write(f"{name}.txt", make_text(name))
    lease = workplace.open()
    workplace.admit(lease)
    return lease.run.id


def cancel_run(workplace: Workplace, run_id: int, **chosen: Any) -> Bulk:
    wanted = replace(OURS, run_id=run_id)
    return cancel_jobs(workplace.database, workplace.app.queue, wanted, **chosen)


def endings(database: Database, run_id: int) -> list[str]:
    """How often a run told of its end."""
    ended = sa.or_(*(events.c.message.startswith(f"{end}: ") for end in ("finished", "error")))
    told = sa.and_(events.c.run_id == run_id, ended)
    with database.read() as tx:
        return list(tx.execute(sa.select(events.c.message).where(told)).scalars())


def test_a_run_whose_last_jobs_are_cancelled_is_finalized_once(workplace: Workplace) -> None:
    run_id = admit(workplace, "a", "b", "c")

    answers = run_together(4, lambda _: cancel_run(workplace, run_id))

    assert sum(answer.done for answer in answers) == 3
    report = workplace.report(run_id)
    assert (report.run.status, counts(report)) == ("error", {"error": 3})
    assert endings(workplace.database, run_id) == ["error: 3 failed (unknown 3)"]
    line = workplace.document(run_id, "a.txt")
    assert (line.status, line.reason) == ("error", "it was cancelled by hand")
    before = read_rows(workplace.database, runs)
    assert cancel_run(workplace, run_id) == Bulk()
    assert read_rows(workplace.database, runs) == before


def test_a_run_that_has_something_left_goes_on(workplace: Workplace) -> None:
    run_id = admit(workplace, "a", "b", "c")

    assert cancel_run(workplace, run_id, limit=2).done == 2
    assert workplace.report(run_id).run.status == "ingesting"
    workplace.drain(run_id)

    report = workplace.report(run_id)
    assert (report.run.status, counts(report)) == ("finished", {"ready": 1, "error": 2})


# Jobs under way


def beat(desk: Desk, owner: str, **values: Any) -> None:
    """Have a worker of this name be known, that lives as long as the clock says."""
    with at(desk.database, desk.second) as tx:
        row = {
            "id": owner,
            "host": "mill",
            "pid": 12,
            "version": "1.2",
            "status": "running",
            "started_at": tx.now,
            "heartbeat_at": tx.now,
            "completed": 3,
            "failed": 1,
        }
        tx.execute(sa.insert(workers).values(row | values))


def look(desk: Desk, tenant_id: str | None = TENANT, **chosen: Any) -> list[dict[str, Any]]:
    with at(desk.database, desk.second) as tx:
        return stuck_jobs(tx, tenant_id, **chosen)


def iso(second: float) -> str:
    return (NOON + timedelta(seconds=second)).isoformat()


def test_a_job_under_way_is_shown_with_its_worker_and_its_times(desk: Desk) -> None:
    item = make_item(stage=Stage.EXTRACT, run_id=7)
    [job_id] = desk.enqueue(item)
    claim = desk.later(5).claim("mill:12:ab")
    desk.later(5).start(claim)
    beat(desk.later(15), "mill:12:ab")

    [job] = look(desk.later(15))

    assert job == {
        "id": job_id,
        "tenant_id": TENANT,
        "stage": "extract",
        "node_id": item.node_id,
        "run_id": 7,
        "owner": "mill:12:ab",
        "claimed_at": iso(5),
        "started_at": iso(10),
        "running_seconds": 30.0,
        "inactive_seconds": 15.0,
        "last_heartbeat": iso(25),
        "lease_expires_at": iso(65),
        "expired": False,
        "rescues": 0,
        "attempts": 0,
    }
    assert look(desk.later(25))[0]["expired"] is False, "it lasts to the end of its last second"
    [late] = look(desk.later(0.5))
    assert (late["expired"], late["inactive_seconds"]) == (True, 40.5)


def test_a_job_without_heartbeats_has_been_silent_since_it_was_claimed(desk: Desk) -> None:
    desk.enqueue(make_item())
    desk.later(10).claim("somebody at a prompt")

    [job] = look(desk.later(20))

    assert (job["running_seconds"], job["inactive_seconds"]) == (20.0, 20.0)
    assert (job["started_at"], job["last_heartbeat"]) == (None, None)


def test_jobs_under_way_come_oldest_first_and_only_they(desk: Desk) -> None:
    one_of_each(desk)
    [first] = [number for number, status in statuses(desk).items() if status == "processing"]
    later, second = desk.enqueue(make_item(), make_item())
    hold(desk.later(10), second)
    hold(desk.later(10), later)

    assert [job["id"] for job in look(desk)] == [first, second, later]
    assert [job["id"] for job in look(desk, limit=2)] == [first, second]
    assert [job["id"] for job in look(desk, stage=Stage.EMBED)] == [first]
    with desk.database.read() as tx:
        assert count_processing(tx, TENANT) == 3
        assert count_processing(tx, TENANT, Stage.TEXT) == 2


def test_jobs_under_way_are_narrowed_by_how_long_they_run_and_are_silent(desk: Desk) -> None:
    quiet, lively, new = desk.enqueue(make_item(), make_item(), make_item())
    hold(desk, quiet, owner="quiet")
    hold(desk, lively, owner="lively")
    beat(desk, "quiet")
    beat(desk.later(90), "lively")
    hold(desk, new, owner="lively")

    desk.later(10)

    assert [job["id"] for job in look(desk, min_inactive_seconds=100)] == [quiet]
    assert look(desk, min_inactive_seconds=101) == []
    assert [job["id"] for job in look(desk, min_running_seconds=11)] == [quiet, lively]
    assert [job["id"] for job in look(desk, min_running_seconds=10)] == [quiet, lively, new]
    assert look(desk, min_running_seconds=50, min_inactive_seconds=101) == []


def test_a_tenant_sees_its_own_jobs_under_way_and_an_operator_all(desk: Desk) -> None:
    ours, theirs = desk.enqueue(make_item(), make_item(tenant_id="globex"))
    hold(desk, ours, theirs)

    assert [job["id"] for job in look(desk)] == [ours]
    assert [job["id"] for job in look(desk, "globex")] == [theirs]
    assert [(job["id"], job["tenant_id"]) for job in look(desk, None)] == [
        (ours, TENANT),
        (theirs, "globex"),
    ]
    with desk.database.read() as tx:
        assert [count_processing(tx, one) for one in (TENANT, None)] == [1, 2]


# Workers


def seen(desk: Desk, **chosen: Any) -> dict[str, str]:
    """The workers that are listed, and how they stand."""
    with at(desk.database, desk.second) as tx:
        found = list_workers(tx, lease_seconds=60, **chosen)
    return {worker["id"]: worker["status"] for worker in found}


def test_a_worker_that_lives_is_shown_with_what_it_is_at(desk: Desk) -> None:
    ids = desk.enqueue(*[make_item() for _ in range(3)])
    beat(desk, "mill:12:ab")
    hold(desk, *ids[:2], owner="mill:12:ab")
    hold(desk, ids[2], owner="somebody at a prompt")

    with at(desk.database, 60) as tx:
        [worker] = list_workers(tx, lease_seconds=60)

    assert worker == {
        "id": "mill:12:ab",
        "host": "mill",
        "pid": 12,
        "version": "1.2",
        "status": "running",
        "heartbeat_age": 60.0,
        "jobs": 2,
        "job_ids": ids[:2],
        "completed": 3,
        "failed": 1,
        "started_at": iso(0),
    }
    assert seen(desk.later(60.5)) == {"mill:12:ab": "lost"}


def test_a_lost_worker_is_listed_for_a_day_or_as_long_as_it_holds_jobs(desk: Desk) -> None:
    ids = desk.enqueue(make_item(), make_item(tenant_id="globex"))
    for owner in ("holds", "empty"):
        beat(desk, owner)
    for owner in ("stopped", "stopped too early"):
        beat(desk, owner, status="stopped")
    hold(desk, ids[0], owner="holds")
    hold(desk, ids[1], owner="stopped too early")

    day = 24 * 3600
    early = {"holds": "lost", "empty": "lost", "stopped too early": "stopped"}
    assert seen(desk.later(day)) == early
    assert seen(desk.later(1)) == {"holds": "lost", "stopped too early": "stopped"}
    assert seen(desk, include_all=True) == early | {"stopped": "stopped"}
    assert seen(desk, tenant_id=TENANT) == {"holds": "lost"}
    assert seen(desk, tenant_id="globex") == {"stopped too early": "stopped"}


def test_the_latest_sign_of_life_comes_first(desk: Desk) -> None:
    for owner in ("first", "second", "third"):
        beat(desk.later(10), owner)

    assert list(seen(desk)) == ["third", "second", "first"]


def test_workers_are_listed_by_their_heartbeats(database: Database) -> None:
    desk = Desk(database)

    def listed(**chosen: Any) -> dict[str, str]:
        with database.read() as tx:
            found = list_workers(tx, lease_seconds=60, **chosen)
        return {worker["id"]: worker["status"] for worker in found}

    with Heartbeat(database, desk.queue, every_seconds=20) as heartbeat:
        assert listed() == {heartbeat.owner: "running"}
    assert listed() == {}
    assert listed(include_all=True) == {heartbeat.owner: "stopped"}
