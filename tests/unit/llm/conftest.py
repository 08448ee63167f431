"""A stand-in for Groq, and chains and askers that are closed after each test."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.llm.caller import ModelCaller
from penstock.llm.chain import ModelChain
from penstock.testing import GroqServer
from tests.unit.llm.models import (
    MakeCaller,
    MakeChain,
    RecordingLedger,
    build_caller,
    build_chain,
    make_answer,
)

ASKING_ONLY = ("breaker", "timeout_seconds")
ASKING = (*ASKING_ONLY, "concurrency")


@pytest.fixture
def server() -> Iterator[GroqServer]:
    """Answers well whatever it is asked, unless a test says otherwise."""
    with GroqServer(make_answer()) as server:
        yield server


@pytest.fixture
def ledger() -> RecordingLedger:
    return RecordingLedger()


@pytest.fixture
def make_caller(server: GroqServer) -> Iterator[MakeCaller]:
    with ExitStack() as made:

        def make(**options: Any) -> ModelCaller:
            caller = build_caller(server, **options)
            made.callback(caller.close)
            return caller

        yield make


@pytest.fixture
def make_chain(server: GroqServer, ledger: RecordingLedger) -> Iterator[MakeChain]:
    with ExitStack() as made:

        def make(**options: Any) -> ModelChain:
            asking = {name: options[name] for name in ASKING if name in options}
            chaining = {name: options[name] for name in options if name not in ASKING_ONLY}
            chain = build_chain(build_caller(server, **asking), ledger, **chaining)
            made.callback(chain.close)
            return chain

        yield make


@pytest.fixture
def chain(make_chain: MakeChain) -> ModelChain:
    return make_chain()
