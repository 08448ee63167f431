"""What the scores of documents add up to."""

from typing import Any

import pytest

from penstock.documents import FieldEvidence
from penstock.evaluation.comparison import Level
from penstock.evaluation.evaluation import Evaluation, Setup, compare_evaluations
from penstock.evaluation.page import evaluation_markdown, page_markdown, side_by_side
from penstock.evaluation.scoring import (
    Calibration,
    DocumentScore,
    score_fields,
    summarise_fields,
)

GOLD = {"recent_job_titles": ["Lead", "Clerk"], "years_experience_total": 7}


def score(name: str, found: dict[str, Any], sure: float = 0.9, **values: Any) -> DocumentScore:
    evidence = {field: FieldEvidence(sure) for field in found}
    return DocumentScore(name, "resume", score_fields("resume", GOLD, found, evidence), **values)


GOOD = {"recent_job_titles": ["Lead", "Clerk"], "years_experience_total": 7}
HALF = {"recent_job_titles": ["Lead", "Cook"], "years_experience_total": 12}
NONE: dict[str, Any] = {}


def test_only_labelled_fields_are_judged() -> None:
    scores = score_fields("resume", GOLD, GOOD | {"primary_skills": ["Java"]}, {})
    assert [*scores] == ["recent_job_titles", "years_experience_total"]


def test_a_field_is_summed_over_documents() -> None:
    documents = [score("a", GOOD), score("b", HALF), score("c", NONE)]
    titles = summarise_fields(documents)["resume"]["recent_job_titles"]
    assert titles.documents == 3
    assert titles.counts[Level.EXACT] == (3, 4, 6)
    assert (titles.mean_soft, titles.worst_soft) == (0.5, 0.0)
    assert titles.any_right == pytest.approx(2 / 3)
    years = summarise_fields(documents)["resume"]["years_experience_total"]
    assert (years.counts[Level.SOFT], years.any_right) == ((1, 2, 3), None)
    assert (years.said, years.right) == (0.9, 0.5)


def test_description_and_requirements_are_also_judged_together() -> None:
    wanted = {"description": "We build mills.", "requirements": ["Know mills"]}
    found = {"description": "We build mills. Know mills", "requirements": []}
    scores = score_fields("job_posting", wanted, found, {})
    assert scores["description + requirements"].soft == 1.0
    assert scores["description"].soft == 0.75


def test_the_curve_says_how_often_values_of_a_confidence_are_right() -> None:
    documents = [score("a", GOOD, 0.95), score("b", HALF, 0.95), score("c", HALF, 0.31)]
    curve = Calibration.of(documents)
    low, high = curve.steps
    assert low == pytest.approx((0.3, 0.4, 3, 0.31, 1 / 3))
    assert high == pytest.approx((0.9, 1.0, 6, 0.95, 4 / 6))
    assert curve.error == pytest.approx((3 * 0.0233 + 6 * 0.2833) / 9, abs=0.001)
    assert Calibration.of([score("a", NONE)]).error is None


def evaluation(*documents: DocumentScore, extractor: str = "rules/1", **values: Any) -> Evaluation:
    return Evaluation(Setup("people", extractor, "1.0.0"), documents, 2.0, **values)


def test_an_evaluation_is_read_as_it_was_written() -> None:
    found = evaluation(
        score("a", GOOD, seconds=0.5, tokens=(100, 20, 10), calls=2, cost_usd=0.5),
        score("b", NONE, outcome="failed: it is empty"),
        is_priced=False,
    )
    assert Evaluation.from_json(found.as_json()) == found
    assert found.as_json()["usage"]["cost_usd"] is None
    assert found.as_json()["counts"] == {
        "documents": 2, "ready": 1, "needs_review": 0, "profile_detected": 0,
    }  # fmt: skip


def test_two_setups_show_which_documents_got_better_and_worse() -> None:
    before = evaluation(score("a", HALF), score("b", GOOD), score("c", HALF), score("d", NONE))
    after = evaluation(score("a", GOOD), score("b", NONE), score("c", HALF), score("e", NONE))
    changes = compare_evaluations(before, after)
    assert [(one.id, one.before, one.after) for one in changes.better] == [("a", 0.25, 1.0)]
    assert [one.id for one in changes.worse] == ["b"]
    assert changes.better[0].fields["recent_job_titles"] == (0.5, 1.0)
    assert (changes.same, changes.missing) == (1, 2)


def test_another_profile_is_compared_by_the_names_of_its_fields() -> None:
    before, after = (evaluation(score("a", one)).as_json() for one in (HALF, GOOD))
    after["fields"] = {"people": after["fields"]["resume"]}
    (rows,) = side_by_side(before, after).values()
    assert [row[0] for row in rows] == ["recent_job_titles", "years_experience_total"]


def test_the_page_has_every_figure_and_both_setups() -> None:
    before = evaluation(score("a|b", HALF, seconds=0.25))
    after = evaluation(score("a|b", GOOD, calls=1, cost_usd=0.002), extractor="groq:small>large")
    compared = {
        "before": before.as_json(documents=False),
        "after": after.as_json(documents=False),
        "changes": compare_evaluations(before, after).as_json(),
    }
    page = page_markdown("Evaluation", [after.as_json()], [compared])
    assert "| recent_job_titles | 1 | 1.000 | 1.000 | 1.000 |" in page
    assert "groq:small>large, version 1.0.0" in page
    assert "1 calls" in page
    assert "$0.002000 a document" in page
    assert "0.500 → 1.000 (+0.500)" in page
    assert "| a\\|b | 0.250 | 1.000 |" in page
    unpriced = evaluation(score("a", GOOD, calls=1), is_priced=False)
    assert "unknown cost" in evaluation_markdown(unpriced.as_json())
