"""Two clients without a pipeline behind them: bare httpx, and the SDK with its own retries."""

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from bench.llm_documents import make_bodies
from bench.memory import PeakMemory

Ask = Callable[[dict[str, Any]], bool]
"""Puts one question; whether it was answered."""


@dataclass(frozen=True, slots=True)
class Asked:
    """How long all questions took, and how many were given up."""

    seconds: float
    given_up: int


def with_httpx(url: str, threads: int, bodies: list[dict[str, Any]]) -> Asked:
    import httpx

    limits = httpx.Limits(max_connections=threads, max_keepalive_connections=threads)
    with httpx.Client(limits=limits, timeout=60) as client:

        def ask(body: dict[str, Any]) -> bool:
            response = client.post(f"{url}/openai/v1/chat/completions", json=body)
            response.raise_for_status()
            return bool(json.loads(response.json()["choices"][0]["message"]["content"]))

        return _ask_all(ask, threads, bodies)


def with_sdk(url: str, threads: int, bodies: list[dict[str, Any]]) -> Asked:
    from groq import Groq, RateLimitError

    with Groq(api_key="bench", base_url=url, max_retries=2) as client:

        def ask(body: dict[str, Any]) -> bool:
            try:
                answer = client.chat.completions.create(**body)
            except RateLimitError:
                return False
            return bool(json.loads(answer.choices[0].message.content or ""))

        return _ask_all(ask, threads, bodies)


CLIENTS = {"httpx": with_httpx, "sdk": with_sdk}


def _ask_all(ask: Ask, threads: int, bodies: list[dict[str, Any]]) -> Asked:
    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        answered = list(pool.map(ask, bodies))
    return Asked(time.perf_counter() - started, answered.count(False))


def main(name: str, url: str, threads: str, count: str, seed: str) -> None:
    """The time is from the first question to the last answer; the client is built before."""
    bodies = make_bodies(int(count), int(seed))
    with PeakMemory() as memory:
        asked = CLIENTS[name](url, int(threads), bodies)
    sys.stdout.write(json.dumps(asdict(asked) | {"peak_mb": memory.peak_mb}))


if __name__ == "__main__":
    main(*sys.argv[1:])
