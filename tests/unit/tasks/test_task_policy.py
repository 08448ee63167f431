"""Which task failures are tried again."""

import asyncio
import pickle
from typing import Any, cast

import pytest
from prefect.states import Completed, exception_to_failed_state

from penstock.errors import (
    ConfigurationError,
    DocumentFault,
    ErrorClass,
    SchemaMismatch,
    ServiceError,
    StagePaused,
    StoreError,
)
from tasks.policy import is_transient, may_pass


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
        SchemaMismatch("x"),
        StagePaused("extract", "x"),
        DocumentFault(ErrorClass.TIMEOUT, "x"),
        ValueError("x"),
    ],
)
def test_anything_else_is_not(error: Exception) -> None:
    assert not is_tried_again(error)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (DocumentFault(ErrorClass.RATE_LIMITED, "x"), True),
        (DocumentFault(ErrorClass.TIMEOUT, "x"), True),
        (DocumentFault(ErrorClass.CORRUPTION, "x"), False),
        (StoreError("x"), True),
        (SchemaMismatch("x"), False),
        (StagePaused("extract", "x"), False),
    ],
)
def test_a_task_of_one_document_tries_again_what_may_pass(error: Exception, expected: bool) -> None:
    state = asyncio.run(exception_to_failed_state(error))
    assert may_pass(cast(Any, None), cast(Any, None), state) is expected


def test_what_a_task_raises_survives_the_way_from_another_process() -> None:
    fault = DocumentFault(ErrorClass.TIMEOUT, "too slow", retry_after_seconds=3.0)
    found = pickle.loads(pickle.dumps(fault))
    assert (str(found), found.kind, found.retry_after_seconds) == ("too slow", fault.kind, 3.0)
    paused = pickle.loads(pickle.dumps(StagePaused("extract", "no key")))
    assert (str(paused), paused.reason) == ("stage extract is paused: no key", "no key")


def test_a_success_is_not_tried_again() -> None:
    assert not is_transient(cast(Any, None), cast(Any, None), Completed())
