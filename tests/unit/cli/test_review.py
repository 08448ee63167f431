"""The commands by which a person looks at records and says what is right."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from entrypoints.cli import review
from entrypoints.cli.main import app
from penstock.errors import UsageError
from penstock.store.database import Database
from tests.contract.ingestion import Workplace
from tests.factories import TENANT

VAGUE = "1234567890 " * 20


@pytest.fixture
def place(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workplace]:
    """Two résumés in which nothing was found."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setenv("PENSTOCK_DSN", database.url)
    monkeypatch.setenv("PENSTOCK_TENANT", TENANT)
    monkeypatch.setattr("entrypoints.cli.output.console._width", 400)
    made = Workplace(database, tmp_path)
    for name in ("old", "new"):
        made.write(f"{name}.txt", f"{name}\n{VAGUE}")
        made.ingest(profile="resume")
    yield made
    made.close()


def call(*words: str, typed: str = "") -> Result:
    return CliRunner().invoke(app, words, input=typed)


def done(*words: str, typed: str = "") -> str:
    told = call(*words, typed=typed)
    assert told.exit_code == 0, (told.output, told.exception)
    return str(told.output)


def read_json(*words: str) -> Any:
    return json.loads(done(*words, "--json"))


def queue() -> list[str]:
    return [one["external_id"] for one in read_json("review")]


@pytest.mark.usefixtures("place")
def test_the_queue_is_listed_with_its_reasons_in_words() -> None:
    told = done("review")
    assert told.index("new") < told.index("old"), "without a terminal there is nothing to ask"
    assert "primary_skills is missing" in told
    assert "showing the first 1" in done("review", "--list", "--limit", "1")
    assert len(read_json("review", "--limit", "1")) == 1
    assert "nothing needs review" in done("review", "--reason", "unsupported:title")


def test_values_are_given_by_name_and_the_items_of_a_list_one_by_one(place: Workplace) -> None:
    node_id = place.node("new.txt").id
    told = done(
        "correct",
        node_id,
        "primary_skills=Rowing",
        "primary_skills=Weirs, locks",
        "years_experience_total=7",
        'recent_job_titles=["Weir keeper"]',
        "--author=ada",
        "--reason=I know",
    )
    assert f"{node_id} " in told
    node = read_json("show", node_id)
    assert node["fields"]["primary_skills"] == ["Rowing", "Weirs, locks"]
    assert node["fields"]["years_experience_total"] == 7
    assert node["fields"]["recent_job_titles"] == ["Weir keeper"]
    assert {(one["author"], one["reason"]) for one in node["corrections"]} == {("ada", "I know")}


def test_a_record_is_accepted_by_one_word(place: Workplace) -> None:
    node_id = place.node("new.txt").id
    assert "needs no review" in done("correct", node_id, "--accept")
    assert queue() == ["old.txt"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "name a field and its value"),
        (("=x",), "write it as field=value"),
        (("colour=red",), "has no field 'colour': use primary_skills"),
        (("years_experience_total=soon",), "as a number, or a range"),
    ],
)
def test_what_cannot_be_done_is_told(place: Workplace, words: tuple[str, ...], told: str) -> None:
    failed = call("correct", place.node("new.txt").id, *words)
    assert isinstance(failed.exception, UsageError)
    assert told in str(failed.exception)


def test_a_person_goes_through_them_one_by_one(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review, "_can_ask", lambda: True)
    answers = [
        *("c", "colour"),
        *("c", "primary_skills", "Rowing", "Weirs", "", "I know"),
        *("c", "recent_job_titles", "Weir keeper", "", ""),
        *("x", "a", "s"),
    ]
    told = done("review", "--author", "ada", typed="\n".join(answers) + "\n")
    assert "nothing else needs review" in told
    assert queue() == ["old.txt"]
    node = place.node("new.txt")
    assert node.fields["primary_skills"] == ["Rowing", "Weirs"]
    assert node.fields["recent_job_titles"] == ["Weir keeper"]
    done("review", typed="q\n")
    assert queue() == ["old.txt"]
    done("review", typed="a\n")
    assert queue() == []
    assert "nothing needs review" in done("review")


def test_corrections_are_written_as_gold(place: Workplace, tmp_path: Path) -> None:
    done("correct", place.node("new.txt").id, "primary_skills=Rowing")
    path = tmp_path / "gold.jsonl"
    assert "1 corrected document written" in done("review", "--gold", str(path))
    (line,) = path.read_text().splitlines()
    gold = json.loads(line)
    assert gold["fields"] == {"primary_skills": ["Rowing"]}
    assert (gold["profile"], gold["text"]) == ("resume", f"new\n{VAGUE}")
    nowhere = call("review", "--gold", str(tmp_path / "no" / "gold.jsonl"))
    assert "cannot be written" in str(nowhere.exception)
