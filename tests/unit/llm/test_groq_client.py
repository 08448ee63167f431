"""The official client as we build it."""

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from groq import APIStatusError, APITimeoutError, Groq

from penstock.errors import ConfigurationError
from penstock.llm.groq import build_groq_client
from penstock.testing import GroqServer, Reply, unavailable
from tests.unit.llm.models import KEY

pytestmark = pytest.mark.full_suite


@pytest.fixture
def client(server: GroqServer) -> Iterator[Groq]:
    with build_groq_client(KEY, server.base_url, timeout_seconds=30) as client:
        yield client


def ask(client: Groq, **options: Any) -> None:
    messages: Any = [{"role": "user", "content": "Pumps in Berlin"}]
    client.chat.completions.create(model="small", messages=messages, **options)


def test_the_client_itself_does_not_retry_a_failure(client: Groq, server: GroqServer) -> None:
    server.always(None, unavailable())
    with pytest.raises(APIStatusError):
        ask(client)
    assert server.count() == 1


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/", "/openai/v1", "/openai/v1/"])
def test_an_address_that_ends_in_v1_is_used_as_it_stands(server: GroqServer, ending: str) -> None:
    with build_groq_client(KEY, server.base_url + ending) as client:
        ask(client)
        assert client.models.list().data
    assert server.count(status=200) == 1


def test_a_client_without_an_address_asks_groq() -> None:
    with build_groq_client(KEY, None) as client:
        assert str(client.base_url).startswith("https://api.groq.com")


def test_a_server_that_asks_for_no_key_gets_some(server: GroqServer) -> None:
    with build_groq_client(None, server.base_url) as client:
        ask(client)
    assert KEY not in server.requests[0].headers["authorization"]


def test_blanks_around_a_key_are_not_sent(server: GroqServer) -> None:
    with build_groq_client(f" {KEY}\r\n", server.base_url) as client:
        ask(client)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("key", [f"{KEY}…", f"{KEY}\n{KEY}", f"{KEY}\x00"])
def test_a_key_that_no_header_can_carry_is_a_configuration_fault_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigurationError, match="GROQ_API_KEY") as raised:
        build_groq_client(key, None)
    assert "gsk" not in str(raised.value)


def test_an_address_without_a_scheme_is_a_configuration_fault() -> None:
    with pytest.raises(ConfigurationError, match="EXTRACTION_BASE_URL"):
        build_groq_client(KEY, "localhost:11434/v1")


def test_an_answer_that_trickles_in_is_given_up_in_time(server: GroqServer) -> None:
    server.always(None, Reply().dribbled(10))
    started = time.monotonic()
    with (
        build_groq_client(KEY, server.base_url, timeout_seconds=0.4) as client,
        pytest.raises(APITimeoutError),
    ):
        ask(client)
    assert time.monotonic() - started < 9


def test_the_key_is_in_no_log_line(
    client: Groq, server: GroqServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.script(None, [unavailable()])
    with caplog.at_level(logging.DEBUG):
        with pytest.raises(APIStatusError):
            ask(client)
        ask(client)
    assert caplog.records
    assert KEY not in caplog.text
    assert KEY not in repr(client)
