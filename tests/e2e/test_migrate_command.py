"""`penstock migrate` in a process of its own."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command

from penstock.store.database import Database
from penstock.store.migration import HEAD, alembic_config, current_revision, migrate
from penstock.store.schema import workers
from tests.e2e.commands import CommandLine

OLDER = "0011"


@pytest.fixture
def penstock(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "home")


@pytest.fixture
def older(penstock: CommandLine) -> str:
    """The address of a database that an older version has made, and that a worker uses."""
    database = Database(f"sqlite:///{penstock.home / 'penstock.db'}")
    migrate(database)
    with database.write() as tx:
        command.downgrade(alembic_config(tx.connection), OLDER)
        row = {"id": "mill:7:abc", "host": "mill", "pid": 7, "version": "0.0.9"}
        row |= {"status": "running", "started_at": tx.now, "heartbeat_at": tx.now}
        tx.execute(sa.insert(workers).values(row | {"completed": 0, "failed": 0}))
    database.close()
    return database.url


def revision(url: str) -> str | None:
    database = Database(url)
    try:
        return current_revision(database)
    finally:
        database.close()


def stop_worker(url: str) -> None:
    database = Database(url)
    with database.write() as tx:
        tx.execute(sa.update(workers).values(status="stopped"))
    database.close()


def test_it_says_what_is_to_do_does_it_and_then_has_nothing_to_do(
    penstock: CommandLine, older: str
) -> None:
    to_do = penstock.run("migrate", "--check")
    assert to_do.code == 1
    assert f"is to be migrated from revision {OLDER} to {HEAD}:" in to_do.out
    assert "  0012  " in to_do.out
    assert revision(older) == OLDER

    refused = penstock.run("migrate")
    assert refused.code == 1
    assert "workers use it: mill:7:abc (version 0.0.9)" in " ".join(refused.err.split())
    assert penstock.run("doctor", "--fix").code == 1, "it is the same migration"
    assert revision(older) == OLDER

    stop_worker(older)
    done = penstock.run("migrate", "--wait", "5", "--json")
    assert (done.code, done.json["migrated"]) == (0, True)
    assert (done.json["from"], done.json["to"]) == (OLDER, HEAD)
    expected = [f"{number:04}" for number in range(int(OLDER) + 1, int(HEAD) + 1)]
    assert [one["id"] for one in done.json["revisions"]] == expected

    for arguments in (("migrate",), ("migrate", "--check")):
        again = penstock.run(*arguments)
        assert again.code == 0, again.err
        assert "nothing to do" in again.out


def test_it_can_be_told_not_to_wait_for_workers(penstock: CommandLine, older: str) -> None:
    wrong = penstock.run("migrate", "--force", "--wait", "5")
    assert wrong.code == 2
    done = penstock.run("migrate", "--force")
    assert done.code == 0, done.err
    assert f"was migrated from revision {OLDER} to {HEAD}" in done.out
    assert revision(older) == HEAD


def test_a_database_of_a_newer_version_is_refused(penstock: CommandLine, older: str) -> None:
    database = Database(older)
    with database.write() as tx:
        tx.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    for arguments in (("migrate",), ("migrate", "--check"), ("migrate", "--force")):
        refused = penstock.run(*arguments)
        assert refused.code == 1
        assert "newer Penstock" in refused.err
        assert "Traceback" not in refused.err
