"""A database moves to another, empty one: everything arrives as it was, or nothing does."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql

from entrypoints.cli import move as move_command
from penstock.documents import Stage
from penstock.errors import SchemaMismatch, StoreError, UsageError
from penstock.local.postgres import PostgresServer
from penstock.search.query import Filters, Mode
from penstock.search.vectors import ensure_index
from penstock.store.database import Database
from penstock.store.migration import HEAD, current_revision, migrate
from penstock.store.move import BATCH_ROWS, move_database, moved_tables
from penstock.store.schema import (
    duties,
    embeddings,
    events,
    metadata,
    nodes,
    runs,
    texts,
    work_items,
    workers,
)
from tests.contract.ingestion import Workplace, counts, make_text
from tests.e2e.commands import CommandLine, Done
from tests.factories import TENANT, add_node, add_source, make_fault, make_item, read_rows
from tests.pages import ROOT

pytestmark = pytest.mark.both_databases

ODD_TEXT = "naïve “mills” 水車 🏭\t\\N \\. ''\n" + "x" * 300_000
MODES: tuple[Mode, ...] = ("text", "vector", "hybrid")
KILLED_HALF_WAY = """
import os, signal, sys
from penstock.search.vectors import ensure_index
from penstock.store.database import Database
from penstock.store.move import move_database

def tell(what, done, total):
    if what == "embeddings" and done:
        os.kill(os.getpid(), signal.SIGKILL)

move_database(Database(sys.argv[1]), Database(sys.argv[2]), ensure_index, tell)
"""

MakeDatabase = Callable[[], Database]


@pytest.fixture
def make_postgres(postgres: PostgresServer) -> Iterator[MakeDatabase]:
    """Databases without any schema."""
    made: list[tuple[str, Database]] = []

    def make() -> Database:
        name = f"moving_{len(made)}"
        made.append((name, Database(postgres.create_database(name))))
        return made[-1][1]

    yield make
    address = postgres.dsn().replace("+psycopg", "")
    with psycopg.connect(address, autocommit=True) as connection:
        for name, database in made:
            database.close()
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            connection.execute(drop)


@pytest.fixture
def target(make_postgres: MakeDatabase) -> Database:
    return make_postgres()


@pytest.fixture
def source(sqlite_template: Path, tmp_path: Path) -> Iterator[Database]:
    """A migrated, empty SQLite database."""
    path = tmp_path / "home" / "penstock.db"
    path.parent.mkdir()
    shutil.copy(sqlite_template, path)
    database = Database(f"sqlite:///{path}")
    yield database
    database.close()


@pytest.fixture
def place(source: Database, tmp_path: Path) -> Iterator[Workplace]:
    """Documents that were ingested, one of which failed for good."""
    place = Workplace(source, tmp_path / "home")
    for name, about in (("Ada", "watermills"), ("Boris", "windmills"), ("Clara", "turbines")):
        place.write(f"{name}.txt", make_text(name, about=about))
    place.write("Dora.txt", make_text("Dora"))
    place.steps.on(Stage.TEXT, "Dora", *[make_fault()] * 10)
    assert counts(place.ingest()) == {"ready": 3, "error": 1}
    yield place
    place.close()


def move(source: Database, target: Database) -> dict[str, int]:
    return move_database(source, target, ensure_index, lambda *_: None)


def contents(database: Database) -> list[tuple[Any, ...]]:
    return read_rows(database, *moved_tables())


def is_empty(database: Database) -> bool:
    return contents(database) == []


def find(place: Workplace, query: str, mode: Mode) -> list[tuple[str, float]]:
    hits = place.app.searcher.search(query, Filters(TENANT), mode, 10)
    return [(hit.id, round(hit.score, 4)) for hit in hits]


def test_everything_that_was_ingested_arrives_as_it_was(
    place: Workplace, source: Database, target: Database
) -> None:
    before = contents(place.database)

    moved = move(source, target)

    assert contents(target) == contents(source) == before
    assert sum(moved.values()) == len(before)
    assert moved["nodes"] == 4
    assert {moved[name] for name in ("texts", "embeddings", "vector_identity")} == {3, 1}
    assert moved["attempts"] > 0
    assert set(moved) == metadata.tables.keys() - {duties.name}


def test_search_finds_the_same_by_every_mode(
    place: Workplace, source: Database, target: Database, tmp_path: Path
) -> None:
    move(source, target)
    after = Workplace(target, tmp_path / "home")

    for query in ("watermills", "what Boris found out", "turbines in Ulm"):
        for mode in MODES:
            here, there = find(place, query, mode), find(after, query, mode)
            assert here
            assert [node_id for node_id, _ in there] == [node_id for node_id, _ in here]
        assert find(after, query, "vector") == find(place, query, "vector")
    after.close()


def test_texts_and_vectors_have_their_indexes_and_the_planner_its_figures(
    place: Workplace, source: Database, target: Database
) -> None:
    del place
    move(source, target)

    with target.read() as tx:
        look = sa.inspect(tx.connection)
        vectors, words = look.get_indexes("embeddings"), look.get_indexes("texts")
        query = "SELECT reltuples FROM pg_class WHERE relname = 'nodes'"
        assert tx.execute(sa.text(query)).scalar_one() == 4
    assert [str(index["name"]).startswith("ix_embeddings_") for index in vectors] == [True]
    assert [index["name"] for index in words] == ["ix_texts_search"]


def test_a_further_ingest_finds_everything_unchanged_and_new_documents_get_new_numbers(
    place: Workplace, source: Database, target: Database, tmp_path: Path
) -> None:
    place.remove("Dora.txt")
    place.ingest()
    move(source, target)
    after = Workplace(target, tmp_path / "home")

    same = after.ingest()
    assert counts(same) == {"skipped": 3}
    assert after.steps.count(Stage.TEXT) == 0
    after.write("Emil.txt", make_text("Emil", about="sluices"))
    after.ingest()

    with target.read() as tx:
        numbers = tx.execute(sa.select(nodes.c.seq).order_by(nodes.c.seq)).scalars().all()
        assert tx.execute(sa.select(sa.func.count()).select_from(runs)).scalar_one() == 4
    assert after.node("Emil.txt").seq == numbers[-1] > place.node("Clara.txt").seq
    assert find(after, "sluices", "text")[0][0] == after.node("Emil.txt").id
    after.close()


def test_numbers_of_rows_that_are_gone_are_not_given_again(
    source: Database, target: Database, make_postgres: MakeDatabase
) -> None:
    with source.write() as tx:
        for _ in range(5):
            add_node(tx)
        tx.execute(sa.delete(nodes).where(nodes.c.seq > 2))
    move(source, target)
    further = make_postgres()
    move(target, further)

    for database in (target, further):
        with database.write() as tx:
            node_id = add_node(tx)
            made = tx.execute(sa.select(nodes.c.seq).where(nodes.c.id == node_id)).scalar_one()
        assert made == 6


def test_odd_values_survive_the_way_there_and_back(
    source: Database, target: Database, tmp_path: Path
) -> None:
    put_odd_things(source)
    back = Database(f"sqlite:///{tmp_path / 'back.db'}")

    move(source, target)
    move(target, back)

    assert contents(source) == contents(target) == contents(back)
    for database in (source, target, back):
        assert json_kinds(database) == [("b", "null"), ("n", None), ("v", '{"a": 1}')]
    with back.write() as tx:
        found = sa.text("SELECT rowid FROM texts_fts WHERE texts_fts MATCH 'mill'")
        assert tx.execute(found).scalars().all() == [1]
        assert add_source(tx, "later") == 2
    back.close()


def put_odd_things(database: Database) -> None:
    with database.write() as tx:
        source_id = add_source(tx)
        precise = tx.now.replace(microsecond=1) - timedelta(days=20_000)
        mark = -(2**63)
        fields = {"ä": [1, 2.5, None, True, {"deep": "水"}], "big": 2**60, "tiny": 1e-300}
        odd = {"title": ODD_TEXT[:30], "simhash": mark, "expired_at": precise, "fields": fields}
        add_node(tx, source_id=source_id, external_id="v", given={"a": 1}, **odd)
        add_node(tx, source_id=source_id, external_id="n", given=sa.null())
        add_node(tx, source_id=source_id, external_id="b", given=None)
        tx.execute(sa.insert(texts).values(seq=1, title="mills", body=ODD_TEXT))
        row = {"seq": 1, "identity": "it's/a:model@3", "embedded_at": precise, "drift": 0.1}
        vector = bytes.fromhex("cdcccc3d 0000003f 00000080".replace(" ", ""))
        tx.execute(sa.insert(embeddings).values(row | {"vector": vector}))


def json_kinds(database: Database) -> list[tuple[str, str | None]]:
    """What stands in a column of JSON, where `null` and nothing are two things."""
    with database.read() as tx:
        stored = sa.select(nodes.c.external_id, sa.cast(nodes.c.given, sa.Text))
        return [(row[0], row[1]) for row in tx.execute(stored.order_by(nodes.c.external_id))]


def test_numbers_that_json_does_not_have_become_null(source: Database, target: Database) -> None:
    with source.write() as tx:
        node_id = add_node(tx, fields={"pay": float("nan"), "note": "NaN", "most": float("inf")})

    move(source, target)

    with target.read() as tx:
        found = tx.execute(sa.select(nodes.c.fields).where(nodes.c.id == node_id)).scalar_one()
    assert found == {"pay": None, "note": "NaN", "most": None}


def test_progress_is_reported_for_each_batch_of_a_table(source: Database, target: Database) -> None:
    with source.write() as tx:
        row = {"tenant_id": TENANT, "stage": "text", "level": "INFO", "at": tx.now}
        lines = [{**row, "message": f"line {n}"} for n in range(2 * BATCH_ROWS + 1)]
        tx.execute(sa.insert(events), lines)
    told: list[tuple[str, int, int]] = []

    move_database(source, target, ensure_index, lambda *news: told.append(news))

    total = 2 * BATCH_ROWS + 1
    steps = [(0, total), (BATCH_ROWS, total), (2 * BATCH_ROWS, total), (total, total)]
    assert [(done, of) for what, done, of in told if what == "events"] == steps


def test_nothing_moves_while_a_run_is_active(place: Workplace, target: Database) -> None:
    lease = place.open()

    with pytest.raises(StoreError, match=rf"{lease.run.id} \(.*documents\).*penstock resume"):
        move(place.database, target)
    assert current_revision(target) is None, "the target was not touched"


def test_nothing_moves_while_workers_hold_jobs(source: Database, target: Database) -> None:
    with source.write() as tx:
        row = {"id": 1, "attempts": 0, "rescues": 0, "priority": 0, "payload": {}}
        times = dict.fromkeys(("run_at", "created_at", "updated_at"), tx.now)
        item = make_item()
        held = {"status": "processing", "lease_owner": "mill-1", "stage": item.stage}
        of = {"tenant_id": TENANT, "node_id": item.node_id}
        tx.execute(sa.insert(work_items).values(row | times | held | of))

    with pytest.raises(StoreError, match=r"mill-1 \(1 jobs\).*penstock maintain"):
        move(source, target)


def test_what_waits_to_be_done_moves_and_is_done_there(
    place: Workplace, target: Database, tmp_path: Path
) -> None:
    with place.database.write() as tx:
        tx.execute(sa.update(work_items).values(status="pending").where(work_items.c.id == 1))

    move(place.database, target)

    after = Workplace(target, tmp_path / "home")
    after.drain()
    with target.read() as tx:
        status = sa.select(work_items.c.status).where(work_items.c.id == 1)
        assert tx.execute(status).scalar_one() == "complete"
    after.close()


def test_a_database_that_has_something_is_refused_and_left_alone(
    place: Workplace, target: Database
) -> None:
    migrate(target)
    with target.write() as tx:
        add_source(tx)
    before = contents(target)

    with pytest.raises(StoreError, match=r"not empty, it has rows: 1 in sources.*createdb"):
        move(place.database, target)
    assert contents(target) == before


def test_workers_that_wait_there_already_are_no_obstacle(
    place: Workplace, source: Database, target: Database
) -> None:
    migrate(target)
    with place.database.read() as tx:
        (known,) = tx.execute(sa.select(workers).limit(1)).mappings()
    with target.write() as tx:
        tx.execute(sa.insert(workers).values({**known, "id": "of-penstock-up"}))
        tx.execute(sa.insert(duties).values(name="recovery", held_until=tx.now))

    move(source, target)

    with target.read() as tx:
        found = set(tx.execute(sa.select(workers.c.id)).scalars())
    assert found >= {"of-penstock-up", known["id"]}


def test_tables_of_another_program_are_not_mistaken_for_ours(
    source: Database, target: Database
) -> None:
    with target.write() as tx:
        tx.execute(sa.text("CREATE TABLE events (id int)"))

    with pytest.raises(StoreError, match=r"tables of another program \(events\)"):
        move(source, target)


def test_a_database_does_not_move_onto_itself(source: Database) -> None:
    with pytest.raises(UsageError, match="is the database that is used now"):
        move(source, Database(source.url))


def test_an_older_schema_is_not_moved_and_not_changed(target: Database, tmp_path: Path) -> None:
    old = Database(f"sqlite:///{tmp_path / 'old.db'}")

    with pytest.raises(SchemaMismatch, match="penstock migrate"):
        move(old, target)
    assert current_revision(old) is None
    old.close()


def test_a_write_to_the_source_meanwhile_undoes_the_move(
    place: Workplace, source: Database, target: Database
) -> None:
    def write(what: str, done: int, _total: int) -> None:
        if what == "nodes" and done:
            with place.database.write() as tx:
                add_node(tx)

    with pytest.raises(StoreError, match="nodes has 5 rows, and 4 were copied"):
        move_database(source, target, ensure_index, write)
    assert is_empty(target)


def test_a_move_that_is_killed_leaves_the_target_empty_and_the_next_one_succeeds(
    place: Workplace, source: Database, target: Database
) -> None:
    del place
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_HALF_WAY, source.url, target.url],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
    )

    assert killed.returncode == -9
    assert current_revision(target) == HEAD
    assert is_empty(target)
    move(source, target)
    assert contents(target) == contents(source)


def command(home: Path, to: str, *options: str, **settings: str) -> Done:
    return CommandLine(home, settings=settings).run("move", "--to", to, *options)


def with_password(database: Database) -> str:
    return database.url.replace("+psycopg", "").replace("postgres@", "postgres:secret@")


def test_the_command_says_what_to_set_and_never_the_password(
    place: Workplace, target: Database, tmp_path: Path
) -> None:
    del place
    done = command(tmp_path / "home", with_password(target))

    assert done.code == 0, done.err
    assert "PENSTOCK_DSN=postgresql://postgres:********@127.0.0.1" in done.out
    assert "secret" not in done.out + done.err
    again = command(tmp_path / "home", with_password(target), "--json")
    assert again.code == 1
    assert "is not empty" in again.json["error"]
    assert "secret" not in again.out + again.err


def test_the_command_prints_the_rows_of_each_table_as_json(
    place: Workplace, target: Database, tmp_path: Path
) -> None:
    done = command(tmp_path / "home", target.url, "--json")

    told = done.json
    assert told["rows"] == len(contents(place.database))
    assert told["tables"]["nodes"] == 4
    assert told["next"] == f"set PENSTOCK_DSN={target.url} for every program, or in .env"
    assert json.loads(done.out)["seconds"] > 0


def test_into_the_postgres_of_penstock_up_nothing_has_to_be_set(
    place: Workplace,
    target: Database,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    running = SimpleNamespace(environment={"PENSTOCK_DSN": target.url})
    home = SimpleNamespace(find=lambda: running)
    monkeypatch.setattr(move_command, "installation_home", lambda _: home)
    monkeypatch.setenv("PENSTOCK_DSN", place.database.url)

    move_command.move(target.url.replace("+psycopg", ""), json=True)

    assert json.loads(capsys.readouterr().out)["next"].startswith("no setting needed")


@pytest.mark.full_suite
@pytest.mark.parametrize(
    ("to", "said"),
    [("nonsense", "write postgresql://"), ("mysql://host/db", "write postgresql://")],
)
def test_the_command_wants_the_address_of_a_database(
    place: Workplace, tmp_path: Path, to: str, said: str
) -> None:
    del place
    done = command(tmp_path / "home", to)
    assert (done.code, said in done.err) == (2, True)


def test_a_home_without_data_has_nothing_to_move(target: Database, tmp_path: Path) -> None:
    done = command(tmp_path / "none", target.url)

    assert done.code == 2
    assert "there is nothing to move" in done.err
    assert not (tmp_path / "none" / "penstock.db").exists()
