"""`penstock backfill` as a person types it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.ingestion import make_text
from tests.e2e.commands import CommandLine


def later(penstock: CommandLine, **settings: str) -> CommandLine:
    """The same home with other settings."""
    return replace(penstock, settings=settings)


def test_a_version_bump_and_a_new_model_are_counted_and_then_done(
    penstock: CommandLine, tmp_path: Path
) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("Ada", "Boris"):
        (folder / f"{name}.txt").write_text(make_text(name))
    assert penstock.run("ingest", folder).code == 0
    bumped = later(penstock, EXTRACTION_VERSION="2.0.0", EMBEDDING_BACKEND="hash")

    pending = bumped.run("status")
    assert "2 vectors are missing" in pending.err
    assert bumped.run("status", "--json").json["vectors"]["missing"] == 2
    found = bumped.run("search", "mills", "--mode", "vector", "--json")
    assert len(found.json) == 2, "by the old vectors"
    shown = bumped.run("backfill", "--dry-run")
    assert shown.code == 0
    assert "2 documents, 2 extractions, estimated cost $0.0000 (offline rules)" in shown.out
    counted = bumped.run("backfill", "--dry-run", "--reason", "outdated", "--json").json
    assert counted["reasons"] == {"outdated": 2}
    assert bumped.run("backfill", "list", "--json").json == [], "nothing was changed"

    done = bumped.run("backfill", "--json")

    assert done.code == 0, done.err
    assert (done.json["status"], done.json["enqueued"], done.json["failed"]) == ("finished", 2, 0)
    assert done.json["vectors"] == "hash/words@64"
    nodes = bumped.run("nodes", "--json").json
    assert {node["extraction_version"] for node in nodes} == {"2.0.0"}
    assert len(bumped.run("search", "mills", "--mode", "vector", "--json").json) == 2
    again = bumped.run("backfill", "--all-tenants")
    assert "finished: 0 documents, 0 failed" in again.out
    assert "finished" in bumped.run("backfill", "list", "--all-tenants").out


def test_a_sample_is_tried_and_discarded_or_promoted(penstock: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("Ada", "Boris", "Chandra"):
        (folder / f"{name}.txt").write_text(make_text(name))
    assert penstock.run("ingest", folder).code == 0
    label = {"id": "Ada.txt", "text": "Ada", "fields": {"title": "Ada"}}
    gold = tmp_path / "gold.jsonl"
    gold.write_text(json.dumps(label))
    bumped = later(penstock, EXTRACTION_VERSION="2.0.0")

    tried = bumped.run("backfill", "--canary", "3", "--gold", gold, "--json")

    assert tried.code == 0, tried.err
    assert (tried.json["done"], tried.json["changed"], tried.json["all_usd"]) == (3, 0, 0)
    assert tried.json["scores"]["after"]["counts"]["documents"] == 1
    shown = bumped.run("backfill", "show", "1")
    assert "3 of 3 documents done, 0 would change" in shown.out
    assert "penstock backfill promote 1" in shown.out
    waiting = bumped.run("backfill", "--dry-run")
    assert "canary 1 is undecided" in waiting.err
    assert "canary 1 is undecided" in bumped.run("status").err
    assert "discarded" in bumped.run("backfill", "discard", "1").out
    again = bumped.run("backfill", "--canary", "1", "--json").json["id"]
    refused = later(penstock).run("backfill", "promote", str(again))
    assert refused.code == 2
    assert "promote it with the same" in " ".join(refused.err.split())
    done = bumped.run("backfill", "promote", str(again), "--json")
    assert (done.json["status"], done.json["enqueued"]) == ("finished", 3)
    nodes = bumped.run("nodes", "--json").json
    assert {node["extraction_version"] for node in nodes} == {"2.0.0"}
    statuses = [one["status"] for one in bumped.run("backfill", "list", "--json").json]
    assert statuses == ["finished", "promoted", "discarded"]


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        ("backfill --reason stale", 2, "belong together"),
        ("backfill --reason rotten", 2, "rotten"),
        ("backfill --tenant a --all-tenants", 2, "exclude each other"),
        ("backfill --limit 0", 2, "limit"),
        ("backfill --source nowhere --dry-run", 1, "nowhere"),
        ("backfill abort 7", 1, "there is no backfill 7"),
        ("backfill promote 7", 1, "there is no backfill 7"),
        ("backfill discard 7", 1, "there is no backfill 7"),
        ("backfill --gold x.jsonl", 2, "give --canary too"),
        ("backfill --canary 5 --dry-run", 2, "exclude each other"),
    ],
)
def test_what_cannot_be_done_is_told(
    tmp_path: Path, arguments: str, code: int, complaint: str
) -> None:
    done = CommandLine(tmp_path / "home").run(*arguments.split())

    assert done.code == code
    assert complaint in done.err
    assert "Traceback" not in done.err
