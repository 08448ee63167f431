from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from groq import Groq
from groq.types.chat import ChatCompletion

from penstock.testing import GroqServer

MakeClient = Callable[..., Groq]
Ask = Callable[..., ChatCompletion]


@pytest.fixture
def server() -> Iterator[GroqServer]:
    with GroqServer() as server:
        yield server


@pytest.fixture
def make_client() -> Iterator[MakeClient]:
    with ExitStack() as clients:

        def make(server: GroqServer, **options: Any) -> Groq:
            settings = {"api_key": "key", "base_url": server.base_url, "max_retries": 0, **options}
            return clients.enter_context(Groq(**settings))

        yield make


@pytest.fixture
def client(server: GroqServer, make_client: MakeClient) -> Groq:
    return make_client(server)


@pytest.fixture
def ask(client: Groq) -> Ask:
    """Ask the server one question through the official client."""

    def ask(text: str = "Pumps in Berlin", model: str = "small", **options: Any) -> ChatCompletion:
        return ask_with(client, text, model, **options)

    return ask


def ask_with(
    client: Groq, text: str = "Pumps in Berlin", model: str = "small", **options: Any
) -> ChatCompletion:
    messages = [{"role": "user", "content": text}]
    completion: ChatCompletion = client.chat.completions.create(
        model=model,
        messages=messages,  # type: ignore[arg-type]
        **options,
    )
    return completion


def content_of(completion: ChatCompletion) -> str | None:
    content: str | None = completion.choices[0].message.content
    return content
