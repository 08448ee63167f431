"""A stand-in for Groq: a real HTTP server on loopback that does what a test tells it to."""

from collections.abc import Iterable
from typing import Self

from penstock.errors import UsageError
from penstock.testing.behaviours import Answer
from penstock.testing.chat import ChatRequest
from penstock.testing.filling import fill_answer
from penstock.testing.limits import Bucket
from penstock.testing.listener import Listener
from penstock.testing.refusals import Abilities
from penstock.testing.script import When
from penstock.testing.service import PREFIXES, ChatService


class GroqServer:
    """Speaks the chat-completions protocol; the official client talks to it unchanged.

        with GroqServer() as server:
            server.script("openai/gpt-oss-20b", [rate_limited(retry_after=2), Reply()])
            server.always("openai/gpt-oss-120b", unavailable(), when="Berlin")
            client = Groq(api_key="any", base_url=server.base_url, max_retries=0)

    What no rule is for gets `answer`: text, fields to be written as JSON, a behaviour, or a
    function of the request that gives one of these. By default it fills the wanted schema.
    Of several rules for a request, one with `when` goes before one without, one for a model
    before one for any (`None`), a script that is not used up before `always`.
    """

    def __init__(
        self,
        answer: Answer = fill_answer,
        *,
        api_key: str | None = None,
        retired: Iterable[str] = (),
        without_json_schema: Iterable[str] = (),
        without_reasoning_effort: Iterable[str] = (),
    ) -> None:
        abilities = Abilities(
            frozenset(retired), frozenset(without_json_schema), frozenset(without_reasoning_effort)
        )
        self._service = ChatService(answer, api_key, abilities)
        self._listener: Listener | None = None
        self._port = 0

    def start(self) -> Self:
        """Listen on a free port; `with` does this. After a close, on the same one again."""
        if self._listener is not None:
            raise UsageError("this Groq server is running already: start it once")
        listener = Listener(self._service, self._port)
        self._port = listener.start()
        self._listener = listener
        return self

    def close(self) -> None:
        """End every connection at once, also those that wait for an answer."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def base_url(self) -> str:
        """For the Groq client, and for `EXTRACTION_BASE_URL`."""
        if self._listener is None:
            raise UsageError("this Groq server is not running: use `with`, or call start()")
        return f"http://127.0.0.1:{self._port}"

    @property
    def openai_url(self) -> str:
        """For clients of OpenAI-compatible servers."""
        return self.base_url + PREFIXES[0]

    def script(self, model: str | None, answers: Iterable[Answer], *, when: When = None) -> None:
        """Give these answers, once each and in order; after the last it is as if never said."""
        self._service.script.add(model, answers, when)

    def always(self, model: str | None, answer: Answer, *, when: When = None) -> None:
        """Give this answer every time, until another `always` for the same requests."""
        self._service.script.settle(model, answer, when)

    def limit_requests(self, per_second: float, burst: int | None = None) -> None:
        """Refuse what comes faster, with 429 and a true Retry-After.

        `burst` may come at once after a pause: without it, what one second allows.
        """
        self._service.limits.requests = Bucket(per_second, burst or max(1.0, per_second))

    def limit_tokens(self, per_minute: int) -> None:
        """The same for tokens, asked and answered; a prompt over the whole limit gets 413."""
        self._service.limits.tokens = Bucket(per_minute / 60, per_minute)

    @property
    def requests(self) -> list[ChatRequest]:
        """All chat requests so far, in the order they came."""
        return self._service.records.requests

    @property
    def peak_concurrency(self) -> int:
        """The most requests that waited for their answers at one time."""
        return self._service.records.peak

    def count(self, model: str | None = None, status: int | None = None) -> int:
        """How many requests there were, of that model and answered with that status if given."""
        return self._service.records.count(model, status)

    def reset(self) -> None:
        """As new: no requests, no rules, no limits. Requests that wait go on waiting."""
        self._service.records.clear()
        self._service.script.clear()
        self._service.limits.requests = None
        self._service.limits.tokens = None
