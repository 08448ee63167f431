"""Jobs and workers on the command line."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.app import App, open_app
from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.queue.items import Claim, NewItem
from penstock.settings import load_settings
from penstock.store.database import new_node_id
from penstock.store.schema import workers
from tests.e2e.commands import CommandLine

BROKEN = Fault(ErrorClass.CORRUPTION, "the file is broken")


@pytest.fixture
def penstock(tmp_path: Path) -> CommandLine:
    """None of these commands needs a Prefect server."""
    return CommandLine(tmp_path / "home")


@pytest.fixture
def app(penstock: CommandLine) -> Iterator[App]:
    """What the commands look at."""
    with open_app(load_settings(home=penstock.home)) as app:
        yield app


def enqueue(app: App, stage: Stage = Stage.TEXT, tenant_id: str = "default") -> int:
    node_id = new_node_id()
    with app.database.write() as tx:
        return app.queue.enqueue(tx, [NewItem(tenant_id, node_id, stage)])[node_id, stage]


def hold(app: App, *ids: int, owner: str = "mill:12:ab") -> Claim:
    with app.database.write() as tx:
        claim = app.queue.claim(tx, owner, only=ids)
        app.queue.start(tx, claim, claim.items)
    assert sorted(claim.ids) == sorted(ids)
    return claim


def kill(app: App, *ids: int) -> None:
    claim = hold(app, *ids)
    with app.database.write() as tx:
        app.queue.fail(tx, claim, [(item, BROKEN) for item in claim.items])


def lose_worker(app: App, owner: str) -> None:
    """A worker that said two hours ago that it runs, and nothing since."""
    with app.database.write() as tx:
        row = {
            "id": owner,
            "host": "mill",
            "pid": 12,
            "version": "1.2",
            "status": "running",
            "started_at": tx.now - timedelta(hours=3),
            "heartbeat_at": tx.now - timedelta(hours=2),
            "completed": 3,
            "failed": 1,
        }
        tx.execute(sa.insert(workers).values(row))


def test_failed_jobs_are_listed_shown_and_retried(penstock: CommandLine, app: App) -> None:
    dead, also_dead, waiting = enqueue(app), enqueue(app, Stage.EMBED), enqueue(app)
    kill(app, dead, also_dead)
    theirs = enqueue(app, tenant_id="globex")
    kill(app, theirs)

    listed = penstock.run("jobs", "list", "--status", "failed", "--json").json
    assert [job["id"] for job in listed] == [also_dead, dead]
    page = penstock.run("jobs", "list", "--limit", "1", "--before", str(waiting), "--json").json
    assert [job["id"] for job in page] == [also_dead]
    table = penstock.run("jobs", "list", "--error-class", "corruption", "--stage", "embed").out
    assert "the file is broken" in table

    shown = penstock.run("jobs", "show", str(dead))
    assert "failed" in shown.out
    assert "history" in shown.out
    assert "mill:12:ab" in shown.out

    named = penstock.run("jobs", "retry", str(dead), str(waiting), str(theirs), "--json")
    assert named.code == 1, "some that were named were refused"
    assert (named.json["requested"], named.json["retried"]) == (3, 1)
    assert [one["id"] for one in named.json["refused"]] == [theirs, waiting]
    found = penstock.run("jobs", "retry", "--status", "failed", "--all")
    assert (found.code, found.out) == (0, "1 of 1 retried, 0 refused\n")
    counted = penstock.run("jobs", "stats", "--json").json
    assert (counted["text"]["pending"], counted["embed"]["pending"]) == (2, 1)
    assert penstock.run("jobs", "stats", "--tenant", "globex", "--json").json["text"]["failed"] == 1


def test_all_means_all_however_many_there_are(penstock: CommandLine, app: App) -> None:
    new = [NewItem("default", new_node_id(), Stage.TEXT) for _ in range(2001)]
    with app.database.write() as tx:
        app.queue.enqueue(tx, new)

    some = penstock.run("jobs", "cancel", "--stage", "text", "--all", "--limit", "1")
    assert some.out == "1 of 1 cancelled, 0 refused\n"
    with app.database.write() as tx:
        app.queue.enqueue(tx, [NewItem("default", new_node_id(), Stage.TEXT)])
    rest = penstock.run("jobs", "cancel", "--stage", "text", "--all", "--json")

    assert rest.json == {"requested": 2001, "cancelled": 2001, "refused": []}


def test_stuck_jobs_and_lost_workers_are_found(penstock: CommandLine, app: App) -> None:
    assert "no job is processing" in penstock.run("jobs", "stuck").out
    assert "no workers" in penstock.run("workers").out
    job = enqueue(app)
    hold(app, job)
    lose_worker(app, "mill:12:ab")

    [held] = penstock.run("jobs", "stuck", "--inactive", "3600", "--json").json
    assert (held["id"], held["owner"], held["expired"]) == (job, "mill:12:ab", False)
    table = penstock.run("jobs", "stuck", "--all-tenants").out
    assert "mill:12:ab" in table
    assert "shown: 1 of 1" in table
    assert "all clear: 1 in processing" in penstock.run("jobs", "stuck", "--running", "3600").out
    [worker] = penstock.run("workers", "--json").json
    assert (worker["status"], worker["job_ids"]) == ("lost", [job])
    assert "lost" in penstock.run("workers").out

    assert penstock.run("jobs", "cancel", str(job)).out == "1 of 1 cancelled, 0 refused\n"
    deleted = penstock.run("jobs", "delete", str(job), "--json")
    assert (deleted.code, deleted.json) == (0, {"deleted": job})


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        ("jobs retry 7 --all", 2, "name jobs"),
        ("jobs cancel --all", 2, "say which jobs"),
        ("jobs retry seven", 2, "ids"),
        ("jobs show 9223372036854775808", 2, "9223372036854775807"),
        ("jobs list --node nonsense", 2, "is not a node id"),
        ("jobs show 7", 1, "there is no job 7"),
    ],
)
def test_what_cannot_be_done_is_told(
    penstock: CommandLine, arguments: str, code: int, complaint: str
) -> None:
    done = penstock.run(*arguments.split())

    assert done.code == code
    assert complaint in done.err
    assert "Traceback" not in done.err
