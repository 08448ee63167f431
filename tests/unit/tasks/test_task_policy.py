"""Which task failures are tried again."""

import asyncio
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
from tasks.policy import is_transient


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


def test_a_success_is_not_tried_again() -> None:
    assert not is_transient(cast(Any, None), cast(Any, None), Completed())
