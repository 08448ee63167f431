"""The chat-completions API: who may ask, what is refused, and what the script has for the rest."""

import itertools
import logging
import time
from dataclasses import replace

from penstock.testing.behaviours import (
    Answer,
    Behaviour,
    Ending,
    Failure,
    Page,
    Reply,
    settle_answer,
)
from penstock.testing.chat import ChatRequest, read_chat_request
from penstock.testing.envelope import (
    completion_tokens,
    write_completion,
    write_error,
    write_models,
)
from penstock.testing.failures import invalid_api_key
from penstock.testing.limits import Limits
from penstock.testing.records import Records
from penstock.testing.refusals import Abilities
from penstock.testing.script import Script
from penstock.testing.wire import HttpRequest, HttpResponse

log = logging.getLogger(__name__)

PREFIXES = ("/openai/v1", "/v1")
USUAL_MODELS = frozenset({"openai/gpt-oss-20b", "openai/gpt-oss-120b"})


class ChatService:
    """Answers requests on the server's thread; what tests set and read may be used from any."""

    def __init__(self, default: Answer, api_key: str | None, abilities: Abilities) -> None:
        self.script = Script()
        self.limits = Limits()
        self.records = Records()
        self._default = default
        self._authorization = None if api_key is None else f"Bearer {api_key}"
        self._abilities = abilities
        self._numbers = itertools.count(1)

    def begin(self) -> None:
        self.records.begin()

    def end(self) -> None:
        self.records.end()

    def respond(self, request: HttpRequest) -> HttpResponse:
        prefix, _, name = request.path.rpartition("/v1/")
        if f"{prefix}/v1" in PREFIXES and (request.method, name) == ("POST", "chat/completions"):
            return self._respond_to_chat(request)
        if f"{prefix}/v1" in PREFIXES and (request.method, name) == ("GET", "models"):
            return self._list_models(request)
        message = f"Unknown request URL: {request.method} {request.path}."
        return self._carry(Failure(404, message, code="unknown_url"), "")

    def _respond_to_chat(self, http: HttpRequest) -> HttpResponse:
        request = read_chat_request(http.body, http.headers, time.monotonic())
        behaviour = self._refuse(request) or self._ask_script(request)
        try:
            response = self._perform(behaviour, request)
        except Exception as error:
            response = self._carry(_blame_script(error), request.model)
        unsent = response.ending in (Ending.UNSENT, Ending.NEVER)
        self.records.add(replace(request, status=None if unsent else response.status))
        return response

    def _list_models(self, http: HttpRequest) -> HttpResponse:
        if not self._is_welcome(http.headers.get("authorization")):
            return self._carry(invalid_api_key(), "")
        models = (USUAL_MODELS | self.script.models) - self._abilities.retired
        return self._carry(Page(200, write_models(models)), "")

    def _is_welcome(self, authorization: str | None) -> bool:
        return self._authorization in (None, authorization)

    def _refuse(self, request: ChatRequest) -> Behaviour | None:
        if not self._is_welcome(request.headers.get("authorization")):
            return invalid_api_key()
        return self._abilities.refuse(request) or self.limits.refuse(request.prompt_tokens)

    def _ask_script(self, request: ChatRequest) -> Behaviour:
        try:
            return settle_answer(self.script.next_answer(request, self._default), request)
        except Exception as error:
            return _blame_script(error)

    def _perform(self, behaviour: Behaviour, request: ChatRequest) -> HttpResponse:
        if not isinstance(behaviour, Reply):
            return self._carry(behaviour, request.model)
        content = behaviour.write_content(request)
        self.limits.charge_tokens(completion_tokens(content, behaviour))
        body = write_completion(request, behaviour, content, next(self._numbers))
        return self._respond_with(behaviour, 200, body)

    def _carry(self, behaviour: Behaviour, model: str) -> HttpResponse:
        match behaviour:
            case Failure():
                return self._respond_with(
                    behaviour, behaviour.status, write_error(behaviour, model)
                )
            case Page():
                return self._respond_with(behaviour, behaviour.status, behaviour.body)
        return self._respond_with(behaviour, 200, b"")

    def _respond_with(self, behaviour: Behaviour, status: int, body: bytes) -> HttpResponse:
        media_type = behaviour.media_type or "application/json"
        return HttpResponse(
            status,
            (("content-type", media_type), *self.limits.headers, *behaviour.headers),
            body[: len(body) // 2] if behaviour.half_body else body,
            behaviour.latency_seconds,
            behaviour.body_seconds,
            behaviour.ending,
        )


def _blame_script(error: Exception) -> Behaviour:
    log.error("the scripted answer failed", exc_info=error)
    reason = f"{type(error).__name__}: {error}"
    return Failure(500, f"the scripted answer raised {reason}", "internal_server_error")
