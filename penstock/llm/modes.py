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
    """The mode of each model; one that refuses a request is asked more simply from then on."""

    def __init__(self, reasoning_effort: str) -> None:
        self._reasoning_effort = reasoning_effort
        self._lock = threading.Lock()
        self._refused: dict[str, Mode] = {}

    def mode_of(self, model: str, profile: Profile) -> Mode:
        strict = model in _STRICT_MODELS and fits_strict_mode(profile.schema)
        first = Mode.STRICT if strict else Mode.JSON
        return max(first, self._refused.get(model, first))

    def step_down(self, model: str, refused: Mode) -> bool:
        """Ask more simply than this; False when there is no simpler way."""
        if refused is Mode.PLAIN:
            return False
        with self._lock:
            simpler = Mode(refused + 1)
            self._refused[model] = max(simpler, self._refused.get(model, simpler))
        return True

    def options(self, mode: Mode, profile: Profile) -> dict[str, Any]:
        """What the request says beside the messages."""
        if mode is Mode.PLAIN:
            return {}
        if mode is Mode.JSON:
            return {"response_format": {"type": "json_object"}}
        schema = {"name": profile.name, "strict": True, "schema": strict_schema(profile.schema)}
        return {
            "response_format": {"type": "json_schema", "json_schema": schema},
            "reasoning_effort": self._reasoning_effort,
        }
