"""What `penstock doctor` finds, on both databases."""

from pathlib import Path

import sqlalchemy as sa

from penstock.doctor import Finding, diagnose
from penstock.runs.lifecycle import abort_run, close_listing, pause_run, try_finalize
from penstock.runs.run import DocumentStatus
from penstock.settings import load_settings
from penstock.store.database import Database
from tests.contract.test_runs import QUEUE, add_documents, start_run


def all_findings(url: str | None, home: Path) -> list[Finding]:
    settings = load_settings(home=home, dsn=url)
    prefect = Finding("Prefect API", "ok", "not asked here")
    return [*diagnose(settings, prefect=lambda: prefect)]


def findings(url: str | None, home: Path) -> dict[str, Finding]:
    return {finding.what: finding for finding in all_findings(url, home)}


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


def test_a_source_whose_last_run_failed_or_is_paused_is_found_until_it_went_well(
    database: Database, tmp_path: Path
) -> None:
    failed, paused = start_run(database), start_run(database, "paused")
    add_documents(database, failed, "a", "b", status=DocumentStatus.ERROR)
    close_listing(database, failed)
    assert try_finalize(database, failed.run.id)
    pause_run(database, paused, "GROQ_API_KEY is refused")

    reports = [one for one in all_findings(database.url, tmp_path) if one.what == "runs"]

    assert [one.verdict for one in reports] == ["warning", "warning"]
    assert "is paused: GROQ_API_KEY is refused" in reports[0].detail
    assert "failed: 2 of 2 documents failed (unknown 2)" in reports[1].detail
    assert f"penstock run {failed.run.id}" in (reports[1].advice or "")

    abort_run(database, QUEUE, paused.run.id, reason="by hand")
    again = start_run(database)
    close_listing(database, again)
    assert try_finalize(database, again.run.id)
    assert findings(database.url, tmp_path)["runs"].verdict == "ok"
