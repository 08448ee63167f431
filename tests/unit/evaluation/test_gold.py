"""Labelled documents: what a gold file may hold, and those that come with Penstock."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import UsageError
from penstock.evaluation.gold import HALVES, SETS, read_gold, read_gold_file


def write(folder: Path, *lines: dict[str, Any] | str) -> Path:
    path = folder / "gold.jsonl"
    texts = (one if isinstance(one, str) else json.dumps(one) for one in lines)
    path.write_text("\n".join(texts))
    return path


def line(**values: Any) -> dict[str, Any]:
    return {"id": "a", "text": "A text.", "profile": "resume", "fields": {}, **values}


def test_a_line_is_a_document_and_its_fields(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<p>A page</p>")
    of_text = line(fields={"primary_skills": ["Java"]}, date="2018-09-03", title="Jane")
    of_file = {"id": "b", "file": "page.html", "url": "https://x.example/1", "fields": {}}
    first, second = read_gold_file(write(tmp_path, of_text, "", of_file))
    assert (first.text, first.metadata, first.title) == ("A text.", {"date": "2018-09-03"}, "Jane")
    assert first.fields == {"primary_skills": ["Java"]}
    assert (second.file, second.profile) == (tmp_path / "page.html", None)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["{"], "line 1 is not JSON"),
        ([line(), line()], "line 2: the id 'a' is there twice"),
        ([line(profile="cv")], "no profile is named 'cv'"),
        ([line(fields={"skills": []})], "the profile resume has no field 'skills': use some of"),
        ([line(file="b.txt")], "it needs either text or file"),
        ([{"id": "a", "file": "b.txt", "fields": {}}], "there is no file"),
        ([line(colour="red")], "colour: Extra inputs are not permitted"),
        ([""], "holds no labelled document"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(
    tmp_path: Path, lines: list[dict[str, Any] | str], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        read_gold([str(write(tmp_path, *lines))])


def test_a_file_that_is_not_there_is_told_with_the_names_that_are() -> None:
    with pytest.raises(UsageError, match=r"there is no gold file nowhere.*postings-dev"):
        read_gold(["nowhere"])


def test_without_names_it_is_what_comes_with_penstock_each_half_apart() -> None:
    found = read_gold([])
    assert [one.name for one in found] == [f"{name}-{half}" for name in SETS for half in HALVES]
    assert all(one.records for one in found)
    assert [one.name for one in read_gold(["postings"])] == ["postings-dev", "postings-heldout"]
    ids = [record.id for one in found for record in one.records]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", SETS)
def test_both_halves_have_as_many_documents(name: str) -> None:
    one, other = read_gold([name])
    assert len(one.records) == len(other.records)
