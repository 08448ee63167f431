"""`penstock eval` as a person types it."""

import json
from pathlib import Path

import pytest

from penstock.testing import GroqServer
from tests.contract.ingestion import make_text
from tests.contract.modelling import make_answer
from tests.e2e.commands import CommandLine

TEXT = f"Mills\n\nBy Ada Byron, 1843. About mills.\n\n{make_text('Mills')}"


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    path = tmp_path / "papers.jsonl"
    fields = {"title": "Mills", "authors": ["Ada Byron"], "topics": ["mills"]}
    lines = [{"id": name, "text": TEXT, "profile": "document", "fields": fields} for name in "ab"]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_two_setups_are_shown_side_by_side_and_written_to_a_page(
    tmp_path: Path, gold: Path
) -> None:
    answer = make_answer(title="Mills", authors=["Ada Byron"], topics=["mills"])
    with GroqServer(answer) as server:
        settings = {"EXTRACTION_BASE_URL": server.base_url}
        penstock = CommandLine(tmp_path / "home", settings=settings)
        first = penstock.run("eval", gold, "--backend", "rules", "--json")
        earlier = tmp_path / "rules.json"
        earlier.write_text(first.out)
        page = tmp_path / "page.md"

        shown = penstock.run("eval", gold, "--against", earlier, "--write", page)
        both = penstock.run(
            "eval", gold, "--models", "small,large", "--against", "backend=rules", "--json"
        )

    assert first.code == shown.code == both.code == 0, first.err + shown.err + both.err
    (rules,) = first.json["evaluations"]
    assert rules["setup"]["extractor"].startswith("rules/")
    assert rules["counts"]["documents"] == 2
    assert "2 documents got better" in shown.out
    assert "topics" in shown.out
    assert "# Evaluation" in page.read_text()
    (models,) = both.json["evaluations"]
    assert models["setup"]["extractor"].startswith("groq:small>large")
    assert models["usage"]["cost_usd"] is None, "small has no price"
    (compared,) = both.json["compared"]
    assert compared["before"]["setup"]["extractor"].startswith("rules/")
    assert [one["id"] for one in compared["changes"]["better"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("nowhere.jsonl", "there is no gold file nowhere.jsonl"),
        ("corrections", "has no correction: see `penstock review`"),
        ("postings-dev --backend magic", "magic is not a backend"),
        ("postings-dev --against colour=red", "write backend=…"),
        ("postings-dev --against nothing.json", "nothing.json is not what"),
        ("postings-dev --profile cv", "no profile is named 'cv'"),
    ],
)
def test_what_cannot_be_evaluated_is_told(tmp_path: Path, arguments: str, complaint: str) -> None:
    done = CommandLine(tmp_path / "home").run("eval", *arguments.split())
    assert done.code == 2
    assert complaint in " ".join(done.err.split())
    assert "Traceback" not in done.err
