"""A model's values are looked up; the fallback is asked for those that are not in the text."""

import pytest

from penstock.llm.chain import ModelChain
from penstock.testing import GroqServer, server_error
from tests.unit.llm.models import (
    FALLBACK,
    PRIMARY,
    RecordingLedger,
    found,
    make_answer,
    make_request,
)

pytestmark = pytest.mark.full_suite

INVENTED = make_answer(recent_job_titles=["Chief Astronaut"], primary_skills=["Python", "Zlang99"])


def test_supported_values_keep_the_confidence_of_the_model(
    chain: ModelChain, server: GroqServer
) -> None:
    server.always(PRIMARY, make_answer(confidence=0.65))
    extraction = found(chain.extract([make_request()])[0])
    assert extraction.confidence == 0.65
    assert extraction.evidence["primary_skills"].confidence == 0.65
    (place,) = extraction.evidence["recent_job_titles"].places
    assert place is not None
    assert place.quote == "Data Engineer"
    assert server.count(FALLBACK) == 0


def test_the_fallback_is_asked_for_the_unsupported_fields_alone(
    chain: ModelChain, server: GroqServer, ledger: RecordingLedger
) -> None:
    server.always(PRIMARY, INVENTED)
    again = {"recent_job_titles": ["Data Engineer"], "primary_skills": ["Python"]}
    server.always(FALLBACK, {**again, "confidence": 0.8})
    extraction = found(chain.extract([make_request()])[0])
    schema = server.requests[-1].schema
    assert schema is not None
    assert set(schema["properties"]) == {"recent_job_titles", "primary_skills", "confidence"}
    assert extraction.fields["recent_job_titles"] == ["Data Engineer"]
    assert extraction.fields["primary_skills"] == ["Python"]
    assert extraction.fields["industries"] == ["Hydropower"]
    assert not any(one.unsupported for one in extraction.evidence.values())
    assert extraction.fallback_reason == "unsupported"
    assert [call.outcome for _, call in ledger.calls] == ["unsupported", "accepted"]


def test_what_neither_model_finds_goes_unless_it_is_required(
    chain: ModelChain, server: GroqServer
) -> None:
    invented = make_answer(certifications=["Moon Pilot"], recent_job_titles=["Chief Astronaut"])
    server.always(PRIMARY, invented)
    server.always(FALLBACK, {"certifications": None, "recent_job_titles": [], "confidence": 0.9})
    extraction = found(chain.extract([make_request()])[0])
    assert extraction.fields["certifications"] == []
    assert extraction.fields["recent_job_titles"] == ["Chief Astronaut"]
    assert extraction.evidence["recent_job_titles"].unsupported
    assert extraction.evidence["recent_job_titles"].confidence == 0.45
    assert extraction.confidence < 0.9


def test_without_a_fallback_the_answer_is_kept_and_says_what_is_unsupported(
    chain: ModelChain, server: GroqServer
) -> None:
    server.always(PRIMARY, INVENTED)
    server.always(FALLBACK, server_error())
    extraction = found(chain.extract([make_request()])[0])
    assert extraction.fields["recent_job_titles"] == ["Chief Astronaut"]
    assert extraction.evidence["primary_skills"].places[1] is None
    assert "kept_primary" in extraction.marks
    assert extraction.confidence < 0.9


@pytest.mark.parametrize("titles", [["Data Engineer"], ["data  engineer"], ["Engineer, Data"]])
def test_a_value_in_other_letters_is_no_reason_for_a_second_call(
    chain: ModelChain, server: GroqServer, titles: list[str]
) -> None:
    server.always(None, make_answer(recent_job_titles=titles))
    found(chain.extract([make_request()])[0])
    assert server.count() == 1
