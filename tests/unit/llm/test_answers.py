"""Answers are read however a model wraps them, and judged the same way every time."""

import json
import logging
import time
from datetime import date
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from penstock.llm.answers import Caps, FallbackReason, JudgedAnswer, judge_answer
from penstock.llm.profiles import Confidence, Profile, profile_named

THRESHOLD = 0.65
GOOD = {"primary_skills": ["Python"], "recent_job_titles": ["Engineer"], "confidence": 0.8}
JSON = json.dumps(GOOD)


def judge(content: str | None, profile: str | Profile = "resume") -> JudgedAnswer:
    wanted = profile if isinstance(profile, Profile) else profile_named(profile)
    return judge_answer(wanted, content, Caps(), THRESHOLD)


def judge_fields(**changes: Any) -> JudgedAnswer:
    return judge(json.dumps({**GOOD, **changes}))


def skills_of(judged: JudgedAnswer) -> Any:
    return (judged.fields or {}).get("primary_skills")


class Line(BaseModel):
    text: str
    amount: float = 0


class Invoice(BaseModel):
    number: str | None = None
    total: float
    due: date | None = None
    lines: list[Line] = []
    tags: list[str] = []
    confidence: Confidence


INVOICE = Profile("invoice", Invoice, "Read the invoice.", required=("total",))


# What is read


@pytest.mark.parametrize(
    "content",
    [
        JSON,
        f"```json\n{JSON}\n```",
        f"```\n{JSON}\n```",
        f"Here is the JSON: {JSON} Hope this helps!",
        f'The "JSON" you {{asked}} for, 5" wide:\n{JSON}',
        f"\ufeff{JSON}",
        f"\ufeff \u00a0\u200b{JSON}\u00a0",
        JSON.replace(": ", ":\u00a0").replace(", ", ",\u2003"),
        json.dumps(GOOD, indent=2),
        f"[{JSON}]",
        f"Result: [{JSON}]",
        json.dumps({"resume": GOOD}),
        json.dumps({"result": {"resume": GOOD}}),
        json.dumps(
            {"fields": {k: v for k, v in GOOD.items() if k != "confidence"}, "confidence": 0.8}
        ),
        JSON.replace('["Python"]', '["Python",]').replace("0.8}", "0.8,\n}"),
        f'<think>Maybe {{"primary_skills": []}} or {JSON.replace("Python", "Guess")}</think>{JSON}',
        f"So the skills are {{…}}, say {JSON.replace('Python', 'Guess')}\n</think>\n\n{JSON}",
        f"<|channel|>final<|message|>{JSON}",
    ],
)
def test_an_answer_is_found_in_any_wrapping(content: str) -> None:
    judged = judge(content)
    assert judged.reason is None
    assert judged.confidence == 0.8
    assert skills_of(judged) == ["Python"]


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "I cannot help with that.",
        "null",
        "[]",
        '"text"',
        JSON[:-1],
        JSON[:20],
        JSON.replace(":", "=", 1),
        f"<think>It could be {JSON} but",
        '{"primary_skills": ["a" "b"], "inner": {"x": 1}}',
    ],
)
def test_what_holds_no_whole_object_is_invalid(content: str | None) -> None:
    assert judge(content) == JudgedAnswer(None, None, FallbackReason.INVALID_JSON)


def test_texts_are_not_changed_when_the_json_is_repaired() -> None:
    text = 'a, ] ,} </think> ```\u00a0\\"{'
    chatty = f"Here: {json.dumps({**GOOD, 'industries': [text]}, ensure_ascii=False)} Done,}}"
    judged = judge(chatty)
    assert judged.fields is not None
    assert judged.fields["industries"] == [text.replace("\u00a0", " ")]


def test_the_last_usable_object_counts_since_drafts_come_first() -> None:
    draft = JSON.replace("Python", "Draft")
    assert skills_of(judge(f"For example {draft}. My answer: {JSON}")) == ["Python"]
    assert skills_of(judge(f'{JSON}\nThe shape was {{"primary_skills": [], "confidence": 1}}')) == [
        "Python"
    ]
    unsure = JSON.replace("0.8", "0.3")
    assert (
        judge(f"First: {JSON} On second thought: {unsure}").reason is FallbackReason.LOW_CONFIDENCE
    )


def test_without_a_usable_object_the_reason_is_that_of_the_first() -> None:
    assert (
        judge('{"confidence": 0.9} {"primary_skills": 3}').reason is FallbackReason.MISSING_FIELDS
    )


# What is judged


def test_unknown_fields_are_dropped_and_confidence_is_apart() -> None:
    judged = judge_fields(shoe_size=44)
    assert judged.reason is None
    assert judged.fields == {
        "primary_skills": ["Python"],
        "recent_job_titles": ["Engineer"],
        "years_experience_total": None,
        "certifications": None,
        "industries": None,
    }


@pytest.mark.parametrize(
    ("confidence", "reason"),
    [
        (0, FallbackReason.LOW_CONFIDENCE),
        (0.64, FallbackReason.LOW_CONFIDENCE),
        (0.65, None),
        ("0.65", None),
        (1, None),
    ],
)
def test_the_threshold_itself_passes(confidence: Any, reason: FallbackReason | None) -> None:
    judged = judge_fields(confidence=confidence)
    assert judged.reason is reason
    assert judged.confidence == float(confidence)
    assert skills_of(judged) == ["Python"]


@pytest.mark.parametrize("confidence", [1.4, -0.1, float("nan"), "high", "", None, True, [], 85])
def test_a_confidence_that_is_none_fails_validation(confidence: Any) -> None:
    assert judge_fields(confidence=confidence) == JudgedAnswer(
        None, None, FallbackReason.FAILED_VALIDATION
    )


def test_an_own_schema_without_bounds_does_not_widen_confidence() -> None:
    class Loose(BaseModel):
        confidence: float

    assert judge('{"confidence": 1.4}', Profile("loose", Loose, "Read.")).fields is None


def test_a_missing_confidence_fails_validation() -> None:
    fields = {name: value for name, value in GOOD.items() if name != "confidence"}
    assert judge(json.dumps(fields)).reason is FallbackReason.FAILED_VALIDATION


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        '{"confidence": 0.9}',
        json.dumps({**GOOD, "primary_skills": None}),
        json.dumps({**GOOD, "primary_skills": []}),
        json.dumps({**GOOD, "recent_job_titles": ["  ", ""]}),
        json.dumps({**GOOD, "recent_job_titles": [None]}),
    ],
)
def test_required_fields_that_are_absent_or_empty_are_missing(content: str) -> None:
    assert judge(content) == JudgedAnswer(None, None, FallbackReason.MISSING_FIELDS)


@pytest.mark.parametrize(
    "changes",
    [
        {"primary_skills": "Python, SQL"},
        {"primary_skills": [{"name": "Python"}]},
        {"years_experience_total": {"years": 3}},
        {"certifications": "AWS"},
    ],
)
def test_wrong_types_fail_validation(changes: dict[str, Any]) -> None:
    assert judge_fields(**changes) == JudgedAnswer(None, None, FallbackReason.FAILED_VALIDATION)


def test_fields_are_cleaned() -> None:
    skills = [spelling for i in range(15) for spelling in (f"Skill{i}", f" SKILL{i} ")]
    judged = judge_fields(primary_skills=skills, years_experience_total="5-7")
    assert judged.fields is not None
    assert judged.fields["primary_skills"] == [f"Skill{i}" for i in range(12)]
    assert judged.fields["years_experience_total"] == "5-7"


def test_a_null_stands_for_a_default_or_for_no_item() -> None:
    posting = {"title": "Fitter", "description": "Fits.", "skills": None, "confidence": 0.9}
    judged = judge(json.dumps(posting), "job_posting")
    assert judged.fields is not None
    assert judged.fields["skills"] == []
    assert skills_of(judge_fields(primary_skills=[None, "Python", None])) == ["Python"]


# Own profiles


def test_the_values_of_an_own_schema_are_plain_json() -> None:
    line = {"text": "Pump", "amount": None, "colour": "red"}
    given = {"total": 0, "due": "2026-01-31", "lines": [line, None], "tags": None}
    judged = judge(json.dumps({**given, "confidence": 1}), INVOICE)
    assert judged == JudgedAnswer(
        {
            "number": None,
            "total": 0.0,
            "due": "2026-01-31",
            "lines": [{"text": "Pump", "amount": 0.0}],
            "tags": [],
        },
        1.0,
        None,
    )


def test_names_that_a_schema_gives_its_fields_outside_are_understood() -> None:
    class Aliased(BaseModel):
        tax_number: Annotated[str, Field(alias="VAT-ID")]
        confidence: Confidence

    profile = Profile("aliased", Aliased, "Read.", required=("tax_number",))
    judged = judge('{"VAT-ID": "DE1", "confidence": 0.7}', profile)
    assert judged.fields == {"tax_number": "DE1"}


def test_a_validator_that_raises_refuses_the_answer_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(BaseModel):
        total: float
        confidence: Confidence

        @field_validator("total")
        @classmethod
        def divide(cls, total: float) -> float:
            return 1 / total

    with caplog.at_level(logging.WARNING):
        judged = judge('{"total": 0, "confidence": 1}', Profile("broken", Broken, "Read."))
    assert judged.reason is FallbackReason.FAILED_VALIDATION
    assert "profile broken raised ZeroDivisionError" in caplog.text


# What is hostile


@pytest.mark.parametrize(
    "content",
    [
        '{"admin": true}',
        '{"system": {"role": "admin", "primary_skills_override": ["all"]}}',
        '{"confidence": 1.0, "admin": true}',
        '{"primary_skills": {"$ref": "#/admin"}, "recent_job_titles": true, "confidence": 1}',
        '[{"admin": true}, {"password": "x"}]',
    ],
)
def test_an_answer_that_obeyed_the_document_is_refused(content: str) -> None:
    assert judge(content).fields is None


def test_what_an_obeying_model_adds_does_not_get_through() -> None:
    judged = judge_fields(admin=True, __proto__={"admin": True})
    assert judged.fields is not None
    assert set(judged.fields) < set(profile_named("resume").schema.model_fields)


@pytest.mark.parametrize(
    "content",
    [
        "{" * 1_000_000,
        "[" * 150_000,
        '{"' * 90_000,
        '{"a" ' * 40_000,
        '{"a":' * 40_000,
        '{"a":' * 200 + JSON + "}" * 200,
        '{"a":"' + '\\"' * 90_000,
        "{" + ", " * 90_000,
        "{" + " " * 190_000,
        '{"primary_skills": [' + "1," * 90_000 + "1]}",
        '{"confidence": ' + "9" * 190_000 + "}",
        '{"confidence": 1e999999}',
        '{"confidence": -Infinity}',
    ],
)
def test_hostile_content_is_refused_quickly(content: str) -> None:
    started = time.process_time()
    assert judge(content).fields is None
    assert time.process_time() - started < 1


def test_numbers_beyond_any_measure_are_as_if_not_said() -> None:
    posting = '{"title": "a", "description": "b", "confidence": 1, "salary_min": %s}'
    for number in ("NaN", "1e999", "9" * 5000, '"NaN"', "null"):
        judged = judge(posting % number, "job_posting")
        assert judged.fields is not None
        assert judged.fields["salary_min"] is None
    assert judge_fields(years_experience_total=10**30).fields is not None


def test_texts_come_out_storable() -> None:
    judged = judge(JSON.replace("Python", "Py\\ud800th\\u0000on \\ud83d\\ude00"))
    assert skills_of(judged) == ["Py?thon 😀"]


@given(st.text() | st.text(alphabet='{}[]",: \\n\ud800a1.<think>/', max_size=60))
def test_no_content_raises(content: str) -> None:
    assert isinstance(judge(content), JudgedAnswer)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda v: (
            st.lists(v, max_size=4) | st.dictionaries(st.sampled_from([*GOOD, "x"]) | st.text(), v)
        ),
        max_leaves=20,
    )
)
def test_no_value_raises(value: Any) -> None:
    judged = judge(json.dumps(value))
    assert judged.fields is None or judged.confidence is not None
