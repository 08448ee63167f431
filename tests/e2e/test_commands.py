"""Every command, for people and for programs."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.commands import CommandLine, Done

PROSE = (
    "{name} has 8 years of experience as a Data Engineer and looks after sluice gates with Python, "
    "PostgreSQL and Kubernetes. Certified Kubernetes Administrator. Works in hydropower."
)
INGEST_KEYS = {
    "run_id",
    "status",
    "counts",
    "llm_calls",
    "tokens",
    "cost_usd",
    "seconds",
    "documents_per_second",
}
COUNTS = {"ready", "skipped", "error", "expired", "pending"}


def write_documents(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.txt").write_text(PROSE.format(name=name.capitalize()))
    return folder


def test_the_way_of_a_document_from_folder_to_search(penstock: CommandLine, tmp_path: Path) -> None:
    folder = write_documents(tmp_path / "docs", "agnes", "boris")

    told = penstock.run("ingest", folder, "--profile", "resume", "--json")

    assert told.code == 0, told.err
    report = told.json
    assert set(report) >= INGEST_KEYS
    assert set(report["counts"]) == COUNTS
    assert report["counts"]["ready"] == 2
    assert report["error"] is None

    nodes = penstock.run("nodes", "--run", str(report["run_id"]), "--json").json
    assert {node["external_id"] for node in nodes} == {"agnes.txt", "boris.txt"}

    node = penstock.run("show", nodes[0]["id"], "--json").json
    assert "sluice gates" in node["text"]
    assert "Python" in node["props"]["primary_skills"]
    assert node["extraction_status"] == node["embedding_status"] == "ready"
    assert node["props"]["extraction_model"] == node["extraction_model"] == "rules"
    assert node["has_embedding"] is True
    assert node["url"].startswith("file://")

    for mode in ("text", "vector", "hybrid"):
        hits = penstock.run("search", "sluice gate", "--mode", mode, "--limit", "1", "--json").json
        assert len(hits) == 1
        assert set(hits[0]) == {"id", "title", "url", "score", "snippet", "passage", "why"}
    only = penstock.run("search", "gates", "--field", "primary_skills=python", "--json").json
    assert len(only) == 2
    assert penstock.run("search", "gates", "--field", "primary_skills=cobol", "--json").json == []
    assert penstock.run("search", "gates", "--at-least", "salary_min=1", "--json").json == []
    assert penstock.run("search", "gates", "--at-least", "salary_min").code == 2

    assert penstock.run("runs", "--json").json[0]["run_id"] == report["run_id"]
    run = penstock.run("run", str(report["run_id"]), "--json").json
    assert [line["status"] for line in run["documents"]] == ["ready", "ready"]
    status = penstock.run("status", "--json").json
    assert status["nodes"] == 2
    assert status["work"]["complete"] == 6

    for command in ("runs", "nodes", "status", "config", "doctor"):
        shown = penstock.run(command)
        assert shown.code == 0, shown.err
        assert shown.out


def test_tenants_do_not_see_each_other(penstock: CommandLine, tmp_path: Path) -> None:
    folder = write_documents(tmp_path / "docs", "chandra")
    penstock.run("ingest", folder, "--tenant", "acme")

    mine = penstock.run("nodes", "--tenant", "acme", "--json").json

    assert len(mine) == 1
    assert penstock.run("nodes", "--json").json == []
    assert penstock.run("search", "gates", "--json").json == []
    assert penstock.run("show", mine[0]["id"]).code == 1
    assert penstock.run("run", "1").code == 1


def test_no_document_steers_the_terminal(penstock: CommandLine, tmp_path: Path) -> None:
    evil = "\x1b]0;pwned\x07\x1b[2J\x9b2J\u202e[link=x]"
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / f"a{evil}.txt").write_text(f"Agnes{evil}\n\n" + PROSE.format(name=f"Agnes{evil}"))
    (folder / f"b{evil}.pdf").write_bytes(b"")

    def run(*arguments: str | Path) -> Done:
        told = penstock.run(*arguments)
        assert told.code == 0, told.err
        obeyed = re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", told.out + told.err)
        assert obeyed == [], arguments
        return told

    assert "pwned" in run("ingest", folder).out
    nodes = run("nodes", "--json").json
    assert {node["external_id"] for node in nodes} == {f"a{evil}.txt", f"b{evil}.pdf"}
    (good,) = [node["id"] for node in nodes if node["external_id"].endswith(".txt")]
    for command in (
        ["nodes"],
        ["show", good],
        ["search", "sluice gates"],
        ["runs"],
        ["run", "1"],
        ["logs", "1"],
        ["jobs", "list", "--status", "failed"],
        ["source", "test", folder],
    ):
        assert run(*command).out
        run(*command, "--json")


def test_failed_documents_are_reported_and_fatal_only_when_strict(
    penstock: CommandLine, tmp_path: Path
) -> None:
    folder = write_documents(tmp_path / "docs", "dagny")
    (folder / "empty.pdf").write_bytes(b"")

    told = penstock.run("ingest", folder)

    assert told.code == 0
    assert "empty.pdf" in told.out
    assert penstock.run("ingest", folder, "--strict").code == 1


@pytest.mark.parametrize(
    "command", ["--help", "ingest --help", "search --help", "runs --help", "doctor --help"]
)
def test_every_command_explains_itself(penstock: CommandLine, command: str) -> None:
    told = penstock.run(*command.split())

    assert told.code == 0
    assert "Usage" in told.out


def test_status_and_text_search_import_no_heavy_library(penstock: CommandLine) -> None:
    program = (
        "import sys; from entrypoints.cli.main import app\n"
        "try: app(['status', '--json'])\n"
        "except SystemExit: pass\n"
        "try: app(['search', 'word', '--mode', 'text'])\n"
        "except SystemExit: pass\n"
        "heavy = {'prefect', 'numpy', 'alembic', 'fastapi', 'trafilatura', 'pdfplumber'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    penstock.run("status")

    import sys

    done = subprocess.run(
        [sys.executable, "-c", program],
        env=penstock.environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_doctor_says_that_prefect_refuses_the_credentials(penstock: CommandLine) -> None:
    assert penstock.prefect is not None
    stranger = CommandLine(penstock.home, settings={"PREFECT_API_URL": penstock.prefect.api_url})

    told = stranger.run("doctor")

    assert told.code == 1
    assert "set PREFECT_API_AUTH_STRING" in told.out
    assert f"Prefect API: {penstock.prefect.api_url}" in penstock.run("doctor").out
    assert penstock.prefect.auth_string not in told.out + told.err


def test_doctor_names_each_failure_and_what_to_do(penstock: CommandLine) -> None:
    broken = CommandLine(
        penstock.home,
        settings={
            "PREFECT_API_URL": "http://127.0.0.1:9/api",
            "REDIS_URL": "redis://:hidden@127.0.0.1:9/0",
            "GROQ_API_KEY": "hidden-key",
        },
    )

    told = broken.run("doctor")

    assert told.code == 1
    assert "unset REDIS_URL" in told.out
    assert "unset it to use a local server" in told.out
    assert "hidden" not in told.out + told.err


def test_ingest_ends_with_its_documents_by_outcome_and_the_next_command(
    penstock: CommandLine, tmp_path: Path
) -> None:
    folder = write_documents(tmp_path / "docs", "agnes")
    (folder / "vague.txt").write_text("1234567890 " * 20)
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 broken")

    told = penstock.run("ingest", folder, "--profile", "resume")

    summary, following = told.out.rstrip().splitlines()[-2:]
    assert summary.startswith("3 documents: ")
    assert summary.endswith("1 failed")
    run_id = re.search(r"next: penstock nodes --run (\d+) --needs-review", following)
    assert run_id is not None
    listed = penstock.run("nodes", "--run", run_id[1], "--needs-review", "--json").json
    assert "vague.txt" in {node["external_id"] for node in listed}
    assert f"{len(listed)} need" in summary
    shown = penstock.run("show", listed[-1]["id"]).out
    assert "needs_review" in shown
