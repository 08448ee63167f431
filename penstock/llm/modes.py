"""How a model is asked to answer in JSON, from the strictest way it understands down."""

import threading
from enum import IntEnum
from typing import Any

from penstock.llm.profiles import Profile
from penstock.llm.strict_schema import fits_strict_mode, strict_schema

# https://console.groq.com/docs/structured-outputs and /docs/reasoning
_STRICT_MODELS = frozenset({"openai/gpt-oss-20b", "openai/gpt-oss-120b"})


class Mode(IntEnum):
    STRICT = 0
    JSON = 1
    PLAIN = 2


class Modes:
    """The mode of each model; one that takes only simpler requests is asked so from then on."""

    def __init__(self, reasoning_effort: str) -> None:
        self._reasoning_effort = reasoning_effort
        self._lock = threading.Lock()
        self._simplest: dict[str, Mode] = {}

    def mode_of(self, model: str, profile: Profile) -> Mode:
        first = _first_mode(model, profile)
        return max(first, self._simplest.get(model, first))

    def step_down(self, model: str, mode: Mode) -> None:
        """The model took a request in this mode, and none in a stricter one."""
        with self._lock:
            self._simplest[model] = max(mode, self._simplest.get(model, mode))

    def options(self, model: str, mode: Mode, profile: Profile) -> dict[str, Any]:
        """What the request says beside the messages; less with each step down."""
        options = _response_format(mode, profile)
        if model in _STRICT_MODELS and mode is _first_mode(model, profile):
            options["reasoning_effort"] = self._reasoning_effort
        return options


def _first_mode(model: str, profile: Profile) -> Mode:
    strict = model in _STRICT_MODELS and fits_strict_mode(profile.schema)
    return Mode.STRICT if strict else Mode.JSON


def _response_format(mode: Mode, profile: Profile) -> dict[str, Any]:
    if mode is Mode.PLAIN:
        return {}
    if mode is Mode.JSON:
        return {"response_format": {"type": "json_object"}}
    schema = {"name": profile.name, "strict": True, "schema": strict_schema(profile.schema)}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}
