"""Chains that ask a stand-in on loopback, and what they are asked."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.documents import Extraction, ExtractionRequest, Fault, ModelCall
from penstock.errors import BudgetSpent
from penstock.llm.answers import Caps
from penstock.llm.caller import ModelCaller
from penstock.llm.chain import ChainSettings, ModelChain, ModelSlots, price_table
from penstock.llm.groq import build_groq_client
from penstock.llm.prompts import JsonModes, Outcome, PreparedRequest, prepare_request
from penstock.llm.ratelimit import LocalGate, RateLimit
from penstock.retry import CircuitBreaker
from penstock.testing import GroqServer

PRIMARY = "openai/gpt-oss-20b"
FALLBACK = "openai/gpt-oss-120b"
KEY = "gsk_very-secret-key"
PROSE = (
    "Ada Byron looks after the sluice gates of the upper reservoir as a Data Engineer and writes "
    "the Python programs that plan when they open. "
)

MakeChain = Callable[..., ModelChain]
MakeCaller = Callable[..., ModelCaller]


def make_answer(**fields: Any) -> dict[str, Any]:
    """A good answer to the profile `resume`, but for what is said otherwise."""
    return {
        "primary_skills": ["Python"],
        "recent_job_titles": ["Data Engineer"],
        "years_experience_total": 6,
        "certifications": None,
        "industries": ["Hydropower"],
        "confidence": 0.9,
        **fields,
    }


def make_request(
    text: str = PROSE * 2, profile: str = "resume", **values: Any
) -> ExtractionRequest:
    return ExtractionRequest(text, profile, **{"node_id": "node-1", **values})


def make_prepared(text: str = PROSE * 2, profile: str = "resume") -> PreparedRequest:
    question = prepare_request(make_request(text, profile))
    assert isinstance(question, PreparedRequest)
    return question


@dataclass
class RecordingLedger:
    """Remembers what it is told; allows as many calls as it is told."""

    allowed: int = 1_000_000
    calls: list[tuple[ExtractionRequest, ModelCall]] = field(default_factory=list)
    kept: list[tuple[ExtractionRequest, Extraction]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def spending(self, request: ExtractionRequest, about_usd: float) -> Iterator[None]:
        del request, about_usd
        with self._lock:
            if self.allowed == 0:
                raise BudgetSpent("extract", "run 1 has cost all it may", 1)
            self.allowed -= 1
        yield

    def record(
        self, request: ExtractionRequest, call: ModelCall, answer: Extraction | None = None
    ) -> None:
        self.calls.append((request, call))
        if answer is not None:
            self.keep(request, answer)

    def keep(self, request: ExtractionRequest, answer: Extraction) -> None:
        self.kept.append((request, answer))

    @property
    def outcomes(self) -> Counter[tuple[str, str]]:
        return Counter((call.model, str(call.outcome)) for _, call in self.calls)


def build_caller(
    server: GroqServer,
    *,
    breaker: CircuitBreaker | None = None,
    timeout_seconds: float = 10.0,
    concurrency: int = 16,
) -> ModelCaller:
    client = build_groq_client(KEY, server.base_url, timeout_seconds, connections=concurrency)
    limits = RateLimit(LocalGate())
    modes = JsonModes("low")
    return ModelCaller(client, limits, breaker or CircuitBreaker(), modes, concurrency=concurrency)


def build_chain(
    caller: ModelCaller,
    ledger: RecordingLedger,
    meanwhile: Callable[[], None] = lambda: None,
    slots: ModelSlots | None = None,
    **changes: Any,
) -> ModelChain:
    values: Mapping[str, Any] = {
        "primary": PRIMARY,
        "fallback": FALLBACK,
        "threshold": 0.65,
        "max_tokens": 1024,
        "max_input_chars": 12_000,
        "concurrency": 16,
        "caps": Caps(),
        "prices": price_table(()),
        **changes,
    }
    return ModelChain(ChainSettings(**values), caller, ledger, meanwhile, slots)


def found(outcome: Outcome) -> Extraction:
    assert isinstance(outcome, Extraction), outcome
    return outcome


def fault(outcome: Outcome) -> Fault:
    assert isinstance(outcome, Fault), outcome
    return outcome
