"""The page of quality and its record."""

import re

from bench.figures import Figure
from bench.quality import PAGE, read_record, render, targets
from penstock.evaluation.gold import HALVES, SETS

BLOCK = re.compile(r"<!-- figures: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def test_the_page_is_what_the_record_says_and_no_number_is_typed_by_hand() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert render(text, read_record()) == text
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", BLOCK.sub("", text))
    assert re.findall(r"(?<![\w-])\d[\d.,]*", prose) == []


def test_each_half_of_each_set_has_its_place() -> None:
    wanted = {f"{name}_{half}" for name in SETS for half in HALVES}
    assert {*BLOCK.findall(PAGE.read_text(encoding="utf-8"))} == wanted | {"summary"}


def test_the_figures_say_when_and_of_what_code_they_are() -> None:
    taken = read_record()["taken"]
    shown = f"Measured {taken['date']}, commit {taken['commit']}, {taken['machine']}."
    assert shown in PAGE.read_text(encoding="utf-8")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", taken["date"])
    assert re.match(r"[0-9a-f]{10}", taken["commit"])


def test_targets_are_of_the_documents_that_were_set_aside() -> None:
    record = read_record()
    found = {one.key: one for one in targets(record)}
    titles = record["evaluations"]["resumes-heldout"]["fields"]["resume"]["recent_job_titles"]
    assert found["resumes.recent_job_titles.any_right"].value == titles["any_right"]
    assert all(isinstance(one, Figure) and one.wanted for one in found.values())


def test_the_record_holds_nothing_of_the_documents() -> None:
    assert all("documents" not in one for one in read_record()["evaluations"].values())
