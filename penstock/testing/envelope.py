"""The JSON around an answer, as Groq writes it: completions, errors and the list of models."""

import json
import time
from collections.abc import Iterable
from typing import Any

from penstock.testing.behaviours import Failure, Reply
from penstock.testing.chat import ChatRequest, estimate_tokens

_PROMPT_TOKENS_PER_SECOND = 20_000
_COMPLETION_TOKENS_PER_SECOND = 1_000
_QUEUE_SECONDS = 0.01


def completion_tokens(content: str | None, reply: Reply) -> int:
    """What the answer costs, its reasoning included."""
    return estimate_tokens(content or "") + estimate_tokens(reply.reasoning or "")


def write_completion(request: ChatRequest, reply: Reply, content: str | None, number: int) -> bytes:
    message = {"role": "assistant", "content": content}
    if reply.reasoning is not None:
        message["reasoning"] = reply.reasoning
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": reply.finish_reason,
    }
    return _encode(
        {
            "id": f"chatcmpl-{number:032x}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": request.model,
            "choices": [choice],
            "usage": _usage(request, reply, content),
            "system_fingerprint": "fp_0000000000",
            "x_groq": {"id": f"req_{number:026x}"},
        }
    )


def write_error(failure: Failure, model: str) -> bytes:
    error = {"message": failure.message.replace("{model}", model), "type": failure.type}
    if failure.code is not None:
        error["code"] = failure.code
    return _encode({"error": {**error, **failure.details}})


def write_models(models: Iterable[str]) -> bytes:
    entries = [
        {"id": model, "object": "model", "created": 1_700_000_000, "owned_by": "Groq"}
        for model in sorted(models)
    ]
    return _encode({"object": "list", "data": entries})


def _usage(request: ChatRequest, reply: Reply, content: str | None) -> dict[str, Any]:
    prompt = request.prompt_tokens
    completion = completion_tokens(content, reply)
    prompt_time = prompt / _PROMPT_TOKENS_PER_SECOND
    completion_time = completion / _COMPLETION_TOKENS_PER_SECOND
    reasoning_tokens = estimate_tokens(reply.reasoning or "")
    return {
        "queue_time": _QUEUE_SECONDS,
        "prompt_tokens": prompt,
        "prompt_time": prompt_time,
        "completion_tokens": completion,
        "completion_time": completion_time,
        "total_tokens": prompt + completion,
        "total_time": prompt_time + completion_time,
        "prompt_tokens_details": {"cached_tokens": min(reply.cached_tokens, prompt)},
        "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
    }


def _encode(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
