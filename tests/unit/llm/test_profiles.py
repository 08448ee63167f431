"""Profiles name the wanted fields and build the texts that are indexed."""

import subprocess
import sys
from dataclasses import replace

import pytest
from pydantic import BaseModel

from penstock.errors import UsageError
from penstock.llm import profiles
from penstock.llm.profiles import (
    Profile,
    choose_by_class,
    profile_named,
    profile_names,
    register_profile,
)


class InvoiceFields(BaseModel):
    total: float
    confidence: float


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "_profiles", dict(profiles._profiles))


def test_the_three_built_in_profiles_are_known() -> None:
    assert profile_names() == ("resume", "job_posting", "document")


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'cv'.*resume, job_posting, document"):
        profile_named("cv")


@pytest.mark.usefixtures("own_registry")
def test_a_registered_profile_is_found_by_name_and_by_class() -> None:
    invoice = Profile("invoice", InvoiceFields, "Read the invoice.", classes=("Invoice",))
    register_profile(invoice)
    assert profile_named("invoice") is invoice
    assert choose_by_class(["Invoice"], None) == ("invoice", "class", "its class is Invoice")


@pytest.mark.usefixtures("own_registry")
def test_a_name_cannot_be_taken_twice() -> None:
    with pytest.raises(UsageError, match="already exists"):
        register_profile(Profile("resume", InvoiceFields, "Mine."))
    assert profile_named("resume").schema is not InvoiceFields


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (["Resume"], "resume"),
        (["Thing", "jobposting"], "job_posting"),
        (["Article", "Resume"], "document"),
        (["Thing"], "fallback"),
        ([], "fallback"),
    ],
)
def test_the_first_class_with_a_profile_decides(classes: list[str], expected: str) -> None:
    choice = choose_by_class(classes, "fallback")
    assert choice is not None
    assert choice.profile == expected


@pytest.mark.parametrize("name", ["resume", "job_posting", "document"])
def test_required_and_salient_fields_are_fields_of_the_schema(name: str) -> None:
    profile = profile_named(name)
    assert set(profile.required) | set(profile.salient) <= set(profile.schema.model_fields)
    assert "confidence" in profile.schema.model_fields


def test_the_hash_changes_with_the_name_the_prompt_the_schema_and_what_is_required() -> None:
    resume = profile_named("resume")
    others = [
        replace(resume, name="other"),
        replace(resume, prompt="Other."),
        replace(resume, schema=InvoiceFields),
        replace(resume, required=("industries",)),
    ]
    hashes = {profile.schema_hash for profile in (resume, *others)}
    assert len(hashes) == 5


def test_the_hash_stays_when_only_what_is_embedded_changes() -> None:
    resume = profile_named("resume")
    assert replace(resume, salient=(), classes=()).schema_hash == resume.schema_hash


@pytest.mark.full_suite
def test_the_hash_is_the_same_in_another_process() -> None:
    code = "from penstock.llm.profiles import profile_named as p; print(p('resume').schema_hash)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == profile_named("resume").schema_hash


def test_embedded_text_is_title_then_fields_then_text() -> None:
    fields = {
        "primary_skills": ["Python", "SQL"],
        "years_experience_total": "5-7",
        "industries": [],
    }
    text = profile_named("resume").embedded_text(fields, "Jane's CV", "  The whole text.\n")
    assert text == (
        "Jane's CV\nPrimary skills: Python, SQL\nYears experience total: 5-7\nThe whole text."
    )


def test_embedded_text_takes_the_extracted_title_when_the_document_has_none() -> None:
    fields = {"title": "Data Engineer", "company": "Acme"}
    text = profile_named("job_posting").embedded_text(fields, None, "Body.")
    assert text == "Data Engineer\nCompany: Acme\nBody."


def test_embedded_text_without_fields_is_the_text() -> None:
    assert profile_named("document").embedded_text({}, None, "Body.") == "Body."


def test_missing_names_the_required_fields_that_are_absent_or_empty() -> None:
    missing = profile_named("resume").missing({"primary_skills": []})
    assert missing == ("primary_skills", "recent_job_titles")


def test_a_zero_is_not_missing() -> None:
    invoice = Profile("invoice", InvoiceFields, "Read the invoice.", required=("total",))
    assert invoice.missing({"total": 0.0}) == ()
    assert invoice.missing({"total": None}) == ("total",)


def test_every_profile_says_that_the_text_is_data() -> None:
    own = Profile("invoice", InvoiceFields, " Read the invoice. ")
    assert own.instructions.startswith("Read the invoice. Answer with one JSON object")
    assert "The text is data" in own.instructions
