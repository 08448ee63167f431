"""Sources by name, several at once, and what a run tells about itself."""

import json
from pathlib import Path

import pytest

from tests.e2e.commands import CommandLine
from tests.e2e.test_commands import write_documents


def test_a_source_is_added_tested_ingested_listed_and_removed(
    penstock: CommandLine, tmp_path: Path
) -> None:
    folder = write_documents(tmp_path / "docs", "agnes", "intern-boris")
    added = penstock.run("source", "add", "people", folder, "--exclude-title", "intern", "--json")
    assert added.code == 0, added.err
    (source,) = added.json
    assert (source["name"], source["kind"], source["location"]) == ("people", "folder", str(folder))

    tried = penstock.run("source", "test", "people", "--json").json
    decided = {one["external_id"]: (one["included"], one["why"]) for one in tried["documents"]}
    assert decided == {
        "agnes.txt": (True, "listed"),
        "intern-boris.txt": (False, "title excluded by 'intern'"),
    }
    assert penstock.run("nodes", "--json").json == []

    told = penstock.run("ingest", "people", "--json")
    assert told.code == 0, told.err
    assert told.json["counts"]["ready"] == 1
    assert told.json["source"] == "people"

    again = penstock.run("ingest", "people", "--force-document", "agnes.txt", "--json").json
    assert (again["counts"]["ready"], again["counts"]["skipped"]) == (1, 0)

    assert penstock.run("source", "remove", "people").code == 0
    assert penstock.run("source", "list", "--json").json == []
    assert len(penstock.run("nodes", "--json").json) == 1


def test_sources_come_from_a_file_and_one_that_fails_spares_the_others(
    penstock: CommandLine, tmp_path: Path
) -> None:
    good = write_documents(tmp_path / "good", "agnes")
    bad = write_documents(tmp_path / "bad", "boris")
    file = tmp_path / "sources.yaml"
    sources = [{"name": "bad", "location": str(bad)}, {"name": "good", "location": str(good)}]
    file.write_text(json.dumps({"sources": sources}))
    assert penstock.run("source", "add", "--file", file).code == 0
    assert penstock.run("ingest", "bad", "--json").code == 0
    (bad / "boris.txt").unlink()
    bad.rmdir()

    told = penstock.run("ingest", "--all", "--json")

    assert told.code == 1
    failed, finished = told.json
    assert (failed["source"], failed["status"], failed["counts"]["expired"]) == ("bad", "error", 0)
    assert (finished["source"], finished["status"]) == ("good", "finished")
    written = penstock.run("source", "list", "--yaml").out
    assert "name: bad" in written
    assert "name: good" in written


def test_a_run_shows_stages_failures_by_class_and_its_log(
    penstock: CommandLine, tmp_path: Path
) -> None:
    folder = write_documents(tmp_path / "docs", "agnes")
    for name in ("a", "b"):
        (folder / f"broken-{name}.pdf").write_bytes(b"%PDF-1.7 no more")
    run_id = str(penstock.run("ingest", folder, "--json").json["run_id"])

    shown = penstock.run("run", run_id, "--json").json
    assert shown["stages"]["text"]["done"] == 1
    assert shown["sources"][0]["listed"] is True
    assert shown["changes"]["new"] == 3
    (group,) = shown["failures"]
    assert (group["error_class"], group["documents"]) == ("corruption", 2)
    assert [one["document"] for one in group["examples"]] == ["broken-a.pdf", "broken-b.pdf"]

    table = penstock.run("run", run_id).out
    assert "corruption" in table
    assert "extract" in table

    lines = [json.loads(line) for line in penstock.run("logs", run_id, "--json").out.splitlines()]
    assert [line["seq"] for line in lines] == sorted({line["seq"] for line in lines})
    assert {"ING", "CRL", "TXT", "LLM", "EMB"} == {line["stage"] for line in lines}
    assert lines[-1]["message"].startswith("finished")
    rest = penstock.run("logs", run_id, "--after", str(lines[2]["seq"]), "--json").out
    assert len(rest.splitlines()) == len(lines) - 3
    errors = penstock.run("logs", run_id, "--level", "error", "--stage", "txt").out
    assert len(errors.splitlines()) == 2
    assert "broken-a.pdf" in errors

    watched = penstock.run("runs", "watch", run_id)
    assert watched.code == 0
    assert "1 ready, 1 needs review, 2 failed (corruption 2)" in watched.out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("source", "add", "acme"), "give a NAME and a LOCATION"),
        (("source", "add", "acme", "/no/such/folder"), "cannot use '/no/such/folder'"),
        (("source", "add", "acme", "http://a.test", "--kind", "moon"), "moon"),
        (("source", "add", "a", "http://a.test", "--link-pattern", "("), "("),
        (("source", "add", "a", "http://a.test", "--profile", "moon"), "no profile is named"),
        (("ingest",), "name one or more sources"),
        (("ingest", "--all"), "there are no sources yet"),
        (("runs", "watch"), "no run is active"),
    ],
)
def test_wrong_use_is_told_and_exits_2(
    penstock: CommandLine, arguments: tuple[str, ...], complaint: str
) -> None:
    done = penstock.run(*arguments)
    assert done.code == 2
    assert complaint in done.err


def test_an_unknown_source_is_not_found(penstock: CommandLine) -> None:
    done = penstock.run("source", "remove", "nowhere")
    assert done.code == 1
    assert "there is no source 'nowhere'" in done.err
