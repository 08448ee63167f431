"""Which task failures are tried again, and what a cached batch is known by."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prefect.states import Completed, exception_to_failed_state

from penstock.documents import (
    ExtractedText,
    Extraction,
    ExtractionRequest,
    ExtractionSkipped,
    Fault,
    ModelCall,
)
from penstock.errors import (
    ConfigurationError,
    DocumentFault,
    ErrorClass,
    ServiceError,
    StagePaused,
    StoreError,
)
from penstock.pipeline.steps import ExtractionResult, Steps, TextResult
from tasks.documents import _EXTRACTIONS, _TEXTS, Batch
from tasks.policy import batch_key, is_transient


def is_tried_again(error: Exception) -> bool:
    state = asyncio.run(exception_to_failed_state(error))
    return is_transient(cast(Any, None), cast(Any, None), state)


@pytest.mark.parametrize(
    "error", [StoreError("x"), ServiceError("x"), ConnectionError(), TimeoutError()]
)
def test_a_fault_of_the_infrastructure_is_tried_again(error: Exception) -> None:
    assert is_tried_again(error)


@pytest.mark.parametrize(
    "error",
    [
        ConfigurationError("x"),
        StagePaused("extract", "x"),
        DocumentFault(ErrorClass.TIMEOUT, "x"),
        ValueError("x"),
    ],
)
def test_anything_else_is_not(error: Exception) -> None:
    assert not is_tried_again(error)


def test_a_success_is_not_tried_again() -> None:
    assert not is_transient(cast(Any, None), cast(Any, None), Completed())


def key_of(task: str, *keys: str) -> str:
    context = cast(Any, SimpleNamespace(task=SimpleNamespace(name=task)))
    return batch_key(context, {"batch": Batch(cast(Steps, None), "run 1", keys, keys)})


def test_a_batch_is_known_by_its_step_and_its_documents_in_order() -> None:
    assert key_of("parse", "a", "b") == key_of("parse", "a", "b")
    assert (
        len({key_of("parse", "a", "b"), key_of("parse", "b", "a"), key_of("embed", "a", "b")}) == 3
    )


def test_results_come_back_from_json_as_they_were() -> None:
    fault = Fault(ErrorClass.EMPTY, "nothing in it", 3.0)
    texts: list[TextResult] = [ExtractedText("text", "title", "text/html", {"pages": 2}), fault]
    call = ModelCall("m", 10, 5, 0.25, 0.001, "accepted")
    answers: list[ExtractionResult] = [
        Extraction({"skills": ["Python"]}, 0.7, "m", (call,), "low confidence"),
        ExtractionSkipped("insufficient_text"),
        fault,
    ]

    assert _TEXTS.validate_json(_TEXTS.dump_json(texts)) == texts
    assert _EXTRACTIONS.validate_json(_EXTRACTIONS.dump_json(answers)) == answers
    assert ExtractionRequest("text", "resume").metadata == {}
