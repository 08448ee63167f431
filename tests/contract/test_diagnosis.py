"""What `penstock doctor` finds, on both databases."""

from pathlib import Path

import sqlalchemy as sa

from penstock.doctor import Finding, diagnose
from penstock.settings import load_settings
from penstock.store.database import Database


def findings(url: str | None, home: Path) -> dict[str, Finding]:
    settings = load_settings(home=home, dsn=url)
    prefect = Finding("Prefect API", "ok", "not asked here")
    return {finding.what: finding for finding in diagnose(settings, prefect=lambda: prefect)}


def test_an_empty_database_is_ok(empty_url: str, tmp_path: Path) -> None:
    found = findings(empty_url, tmp_path)

    assert {finding.verdict for finding in found.values()} == {"ok"}, found


def test_a_database_of_a_newer_version_is_found(database: Database, tmp_path: Path) -> None:
    with database.write() as tx:
        tx.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))

    migrations = findings(database.url, tmp_path)["migrations"]

    assert migrations.verdict == "failed"
    assert "newer" in migrations.detail


def test_a_database_that_does_not_answer_is_found_with_advice(tmp_path: Path) -> None:
    unreachable = findings("postgresql://user:hidden@127.0.0.1:9/db", tmp_path)["database"]

    assert unreachable.verdict == "failed"
    assert "PENSTOCK_DSN" in (unreachable.advice or "")
    assert "hidden" not in unreachable.detail


def test_a_stopped_postgres_of_the_home_is_found_with_advice(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()

    found = findings(None, tmp_path)

    assert found["database"].verdict == "failed"
    assert "penstock up" in (found["database"].advice or "")
    assert found["disk"].verdict == "ok"
