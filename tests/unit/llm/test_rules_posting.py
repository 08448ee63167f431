"""How the rules read a job posting."""

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.documents import Extraction, ExtractionRequest
from penstock.rules import RulesExtractor
from penstock.rules.posting import Salary, find_salary

FILLER = "\n\nWe are an equal opportunity employer and look forward to hearing from everybody."


def read(
    text: str, title: str | None = None, metadata: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    request = ExtractionRequest(text + FILLER * 2, "job_posting", title, metadata or {})
    outcome = RulesExtractor().extract([request])[0]
    assert isinstance(outcome, Extraction)
    return dict(outcome.fields)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Salary: $120,000 - $150,000 per year", Salary(120_000, 150_000, "USD")),
        ("We pay $120k–$150k", Salary(120_000, 150_000, "USD")),
        ("Pay: $120-150k", Salary(120_000, 150_000, "USD")),
        ("€65.000 – €80.000 base", Salary(65_000, 80_000, "EUR")),
        ("Salary £45,000 per annum", Salary(45_000, 45_000, "GBP")),
        ("34-38k EUR", Salary(34_000, 38_000, "EUR")),
        ("Salary: USD 90,000 to 110,000", Salary(90_000, 110_000, "USD")),
        ("CHF 110'000 - 130'000 a year", Salary(110_000, 130_000, "CHF")),
        ("Pay: $18.50 per hour", Salary(18.5, 18.5, "USD")),
        ("C$80,000 salary", Salary(80_000, 80_000, "CAD")),
        ("We raised $40,000,000 in funding", None),
        ("Our annual revenue is $5 million", None),
        ("Salary: competitive", None),
        ("Call 555 1234 about the pay", None),
    ],
)
def test_pay_is_read_as_stated(line: str, expected: Salary | None) -> None:
    assert find_salary(line) == expected


def test_facts_of_the_source_win_over_the_text() -> None:
    facts = {
        "title": "Data Engineer",
        "company": "Blue Lake",
        "location": "Toronto, ON",
        "employment_type": "FULL_TIME",
        "salary_min": "110000",
        "salary_max": 130000,
        "salary_currency": "CAD",
        "description": "Own the pipelines.",
        "requirements": "Strong SQL\n- Two years with dbt",
    }
    text = "Cook\nCompany: Other\nLocation: Rome\nPart-time\nSalary: $10,000 - $20,000"
    fields = read(text, metadata=facts)
    expected = {
        **facts,
        "employment_type": "full-time",
        "salary_min": 110_000.0,
        "salary_max": 130_000.0,
        "requirements": ["Strong SQL", "Two years with dbt"],
    }
    assert {name: fields[name] for name in expected} == expected


@pytest.mark.parametrize(
    "page_title",
    ["Data Engineer - Acme | Careers", "Data Engineer at Acme", "Apply for Data Engineer | Acme"],
)
def test_a_page_title_gives_job_and_company(page_title: str) -> None:
    fields = read("You will build pipelines for a living.", title=page_title)
    assert (fields["title"], fields["company"]) == ("Data Engineer", "Acme")


@pytest.mark.parametrize(
    ("title", "seniority"),
    [
        ("Senior Engineer", "senior"),
        ("Junior Cook", "junior"),
        ("Staff Engineer", "principal"),
        ("Team Lead", "lead"),
        ("Head of Sales", "director"),
        ("Engineering Manager", "manager"),
        ("Account Manager", None),
        ("Engineering Intern", "intern"),
        ("Electrician", None),
    ],
)
def test_seniority_follows_the_title(title: str, seniority: str | None) -> None:
    assert read(title)["seniority"] == seniority


def test_requirements_are_the_bullets_under_their_heading() -> None:
    text = "Cook\n\nWhat you'll do\n- Cook\n\nRequirements\n• Knives\n• Fire\n\nBenefits\n• Food"
    assert read(text)["requirements"] == ["Knives", "Fire"]


def test_a_remote_job_says_so() -> None:
    assert read("Senior Writer (Remote)")["location"] == "Remote"


def test_what_is_not_said_stays_empty() -> None:
    fields = read("something something something")
    assert fields["salary_min"] is fields["salary_currency"] is fields["location"] is None
    assert fields["requirements"] == []
