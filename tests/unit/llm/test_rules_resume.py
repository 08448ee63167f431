"""How the rules read a résumé."""

from typing import Any

import pytest

from penstock.documents import Extraction, ExtractionRequest
from penstock.rules import RulesExtractor

from .scoring import TODAY

FILLER = (
    "\n\nInterests\nLong walks, short books and other things that no recruiter needs to know about."
)


def read(text: str) -> dict[str, Any]:
    outcome = RulesExtractor(today=TODAY).extract([ExtractionRequest(text + FILLER, "resume")])[0]
    assert isinstance(outcome, Extraction)
    return dict(outcome.fields)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("k8s", "Kubernetes"),
        ("Postgres", "PostgreSQL"),
        ("golang", "Go"),
        ("ReactJS", "React"),
        ("sklearn", "scikit-learn"),
        ("C++", "C++"),
        ("c#", "C#"),
        (".NET", ".NET"),
        ("node.js", "Node.js"),
        ("amazon web services", "AWS"),
        ("machine-learning", "Machine Learning"),
    ],
)
def test_a_skill_goes_by_one_name(written: str, name: str) -> None:
    assert read(f"I have worked with {written} for a while.")["primary_skills"] == [name]


@pytest.mark.parametrize(
    "sentence",
    [
        "Excel in a fast paced environment and go to every meeting.",
        "Go to market plans, R&D budgets, C-level talks and vitamin C.",
        "Spark joy, react quickly, express yourself, rest well and swift as ever.",
        "Write to me@python.org or see node.example.com.",
        "John C. Smith and R. Miller were my managers.",
    ],
)
def test_everyday_words_are_no_skills(sentence: str) -> None:
    assert read(sentence)["primary_skills"] == []


def test_everyday_words_count_where_skills_are_listed() -> None:
    found = read("Skills\nC, R, Go, Excel, Swift, Rust")["primary_skills"]
    assert set(found) == {"C", "R", "Go", "Excel", "Swift", "Rust"}


def test_an_everyday_word_counts_in_a_list_within_a_sentence() -> None:
    assert set(read("Services in Go, Rust and Python.")["primary_skills"]) == {
        "Go",
        "Rust",
        "Python",
    }


def test_listed_skills_come_before_mentioned_ones() -> None:
    text = "Docker Docker Docker.\n\nSkills\nHaskell, Erlang"
    assert read(text)["primary_skills"] == ["Haskell", "Erlang", "Docker"]


def test_skills_the_table_does_not_know_are_taken_from_a_list() -> None:
    assert "Falconry" in read("Skills\nFalconry, Python")["primary_skills"]


def test_titles_are_ordered_by_date_not_by_place() -> None:
    text = (
        "Experience\nJunior Clerk, Alpha, 2010 - 2012\nOffice Manager, Gamma, 2016 - Present\n"
        "Senior Clerk, Beta, 2012 - 2016"
    )
    assert read(text)["recent_job_titles"] == ["Office Manager", "Senior Clerk", "Junior Clerk"]


@pytest.mark.parametrize(
    "entry",
    [
        "Data Engineer, Acme, 2019 - Present",
        "Acme | Data Engineer | 2019 – Present",
        "2019 - Present: Data Engineer at Acme",
        "Acme Corp\nData Engineer\nJan 2019 – Present",
        "Jan 2019 - Present\nData Engineer\nAcme Corp",
        "DATA ENGINEER — ACME (2019 to date)",
        "Worked as Data Engineer in Acme from Jan 2019 to till date.",
    ],
)
def test_a_title_is_found_in_many_layouts(entry: str) -> None:
    assert read(f"Experience\n{entry}")["recent_job_titles"] == ["Data Engineer"]


@pytest.mark.parametrize(
    ("text", "years"),
    [
        ("Nurse with 8 years of experience.", 8),
        ("Over 12+ years' experience in retail.", 12),
        ("Ten years of professional experience.", 10),
        ("I bring 5-7 years of experience.", "5-7"),
        ("Experience: 6.5 years", 6.5),
        ("The company has 40 years of history.", None),
    ],
)
def test_stated_years_are_taken_as_they_are(text: str, years: object) -> None:
    assert read(text)["years_experience_total"] == years


@pytest.mark.parametrize(
    ("entries", "years"),
    [
        ("Clerk, A, 2015-2019", 4),
        ("Clerk, A, 2015-2019\nCook, B, 2017-2021", 6),
        ("Clerk, A, 01/2018 - 12/2018\nCook, B, 01/2020 - 12/2020", 2),
        ("Clerk, A, Jan 2018 – Present", 7),
        ("Clerk, A, since 2020", 5),
        ("Clerk, A, 2019-2015", None),
        ("Clerk, A, 2031-2035", None),
    ],
)
def test_years_are_counted_once_from_the_dates(entries: str, years: int | None) -> None:
    assert read(f"Experience\n{entries}")["years_experience_total"] == years


def test_years_of_study_are_not_years_of_work() -> None:
    text = "Experience\nClerk, A, 2020-2023\n\nEducation\nUniversity of X, 2010-2020"
    assert read(text)["years_experience_total"] == 3


def test_dates_win_over_a_statement_about_one_skill() -> None:
    text = "Python: 2 years of experience\n\nExperience\nClerk, A, 2010-2020"
    assert read(text)["years_experience_total"] == 10


def test_a_certification_is_named_once() -> None:
    text = (
        "Ann Lee, CKA\n\nCertifications\nCertified Kubernetes Administrator (CKA), 2022\nPMP\nPMP"
    )
    assert read(text)["certifications"] == ["Certified Kubernetes Administrator (CKA)", "PMP"]


def test_nothing_found_is_null_for_certifications_and_industries() -> None:
    fields = read("I like to work.")
    assert fields["certifications"] is None
    assert fields["industries"] is None


def test_an_industry_needs_more_than_one_sign() -> None:
    assert read("I once visited a hospital.")["industries"] is None
    assert read("Patients of the hospital came to my clinic.")["industries"] == ["Healthcare"]
