"""Runs the extraction over labelled documents and adds up how good, how dear and how slow it is."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from statistics import mean, median, quantiles
from typing import Any, Self

from penstock.app import App, Closable
from penstock.documents import (
    Extraction,
    ExtractionRequest,
    ExtractionSkipped,
    Fault,
    ModelCall,
    RawReference,
)
from penstock.errors import UsageError
from penstock.evaluation.comparison import known_fields
from penstock.evaluation.gold import GoldRecord, GoldSet
from penstock.evaluation.scoring import (
    Calibration,
    DocumentScore,
    FieldSummary,
    rounded,
    score_fields,
    summarise_fields,
)
from penstock.llm.answers import cap_fields
from penstock.llm.chain import price_table
from penstock.llm.profiles import choose_by_class, profile_named
from penstock.pipeline.steps import DirectSteps, ExtractionResult
from penstock.rules.detection import detect_profile

Progress = Callable[[int], None]
"""Called with the number of documents that are done."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What was evaluated."""

    gold: str
    extractor: str
    """Its identity: the rules, or the chain of models."""
    version: str
    profile: str | None = None
    """The one that was asked for; None: each document's own."""
    uncapped: bool = False
    """Whether lists are judged whole, and not as nodes show them."""

    def __str__(self) -> str:
        asked = f", profile {self.profile}" if self.profile else ""
        caps = ", lists whole" if self.uncapped else ""
        return f"{self.extractor}, version {self.version}{asked}{caps}"


@dataclass(frozen=True, slots=True)
class Usage:
    """What an evaluation took."""

    seconds: float
    """Of reading and extracting all documents."""
    latency: Mapping[str, float]
    """Of one document: `mean`, `median`, `p95`, in seconds."""
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cost_usd: float | None
    """None: a model has no price."""

    @classmethod
    def of(cls, documents: Sequence[DocumentScore], seconds: float, is_priced: bool) -> Self:
        took = [one.seconds for one in documents]
        slow = quantiles(took, n=20, method="inclusive")[-1] if len(took) > 1 else took[0]
        prompt, completion, cached = (
            sum(kind) for kind in zip(*[one.tokens for one in documents], strict=True)
        )
        cost = sum(one.cost_usd for one in documents)
        latency = {"mean": mean(took), "median": median(took), "p95": slow}
        calls = sum(one.calls for one in documents)
        usd = cost if is_priced else None
        return cls(seconds, latency, calls, prompt, completion, cached, usd)

    def as_json(self) -> dict[str, Any]:
        latency = {name: rounded(one) for name, one in self.latency.items()}
        return asdict(self) | {"latency": latency, "seconds": rounded(self.seconds)}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The scores of one set of labelled documents under one setup."""

    setup: Setup
    documents: tuple[DocumentScore, ...]
    seconds: float
    is_priced: bool = True

    @property
    def fields(self) -> dict[str, dict[str, FieldSummary]]:
        return summarise_fields(self.documents)

    @property
    def calibration(self) -> Calibration:
        return Calibration.of(self.documents)

    @property
    def usage(self) -> Usage:
        return Usage.of(self.documents, self.seconds, self.is_priced)

    @property
    def score(self) -> float | None:
        """The mean of the documents' scores."""
        known = [one.score for one in self.documents if one.score is not None]
        return mean(known) if known else None

    def as_json(self, *, documents: bool = True) -> dict[str, Any]:
        """Without `documents`, what they add up to alone."""
        summary = {
            "setup": asdict(self.setup),
            "score": rounded(self.score),
            "counts": self._counts(),
            "fields": {
                profile: {name: one.as_json() for name, one in fields.items()}
                for profile, fields in self.fields.items()
            },
            "calibration": self.calibration.as_json(),
            "usage": self.usage.as_json(),
        }
        if not documents:
            return summary
        scores = [one.as_json() for one in self.documents]
        return summary | {"is_priced": self.is_priced, "documents": scores}

    def _counts(self) -> dict[str, int]:
        documents = self.documents
        return {
            "documents": len(documents),
            "ready": sum(one.outcome == "ready" for one in documents),
            "needs_review": sum(one.needs_review for one in documents),
            "profile_detected": sum(one.detected == one.profile for one in documents),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        documents = tuple(map(DocumentScore.from_json, stored["documents"]))
        seconds = stored["usage"]["seconds"]
        return cls(Setup(**stored["setup"]), documents, seconds, stored["is_priced"])


def evaluate(
    app: App,
    gold: GoldSet,
    *,
    profile: str | None = None,
    uncapped: bool = False,
    progress: Progress = lambda _: None,
) -> Evaluation:
    """Extract the labelled documents as a run would, and compare.

    Nothing is written to the store: calls are asked anew, and their cost is told here alone.

    Args:
        app: The parts, with the settings that are to be judged.
        gold: The labelled documents.
        profile: Extract all of them with this profile; None: each with its own.
        uncapped: Judge lists as they are kept, not cut as nodes show them.
        progress: Told how many documents are done.
    """
    if profile is not None:
        _check_profile(profile, gold)
    calls = _CallRecorder()
    extractor = app.build_extractor(calls)
    steps = DirectSteps(app.raw, app.pool, extractor, app.embedder, app.settings.max_document_bytes)
    setup = Setup(gold.name, extractor.identity, app.settings.extraction.version, profile, uncapped)
    runner = _Runner(app, steps, setup, calls)
    began = time.monotonic()
    scores: list[DocumentScore] = []
    size = app.claim_size
    try:
        for start in range(0, len(gold.records), size):
            scores += runner.judge(gold.records[start : start + size])
            progress(len(scores))
    finally:
        if isinstance(extractor, Closable):
            extractor.close()
    seconds = time.monotonic() - began
    prices = price_table(app.settings.extraction.prices)
    return Evaluation(setup, tuple(scores), seconds, calls.models <= prices.keys())


def _check_profile(profile: str, gold: GoldSet) -> None:
    known = {*known_fields(profile_named(profile))}
    if not any(known & record.fields.keys() for record in gold.records):
        raise UsageError(
            f"{gold.name} labels no field of the profile {profile}: its fields are "
            f"{', '.join(sorted(known))}"
        )


class _CallRecorder:
    """A ledger (see `penstock.llm.chain`) in memory: the calls of each document, by its key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls: defaultdict[str, list[ModelCall]] = defaultdict(list)

    @property
    def models(self) -> set[str]:
        return {call.model for calls in self.calls.values() for call in calls}

    @contextmanager
    def spending(self, request: ExtractionRequest, about_usd: float) -> Iterator[None]:
        del request, about_usd
        yield

    def record(
        self, request: ExtractionRequest, call: ModelCall, answer: Extraction | None = None
    ) -> None:
        del answer
        with self._lock:
            self.calls[request.key].append(call)

    def keep(self, request: ExtractionRequest, answer: Extraction) -> None:
        """The answer is judged and forgotten."""


@dataclass(frozen=True, slots=True)
class _Runner:
    """Judges batches of labelled documents."""

    app: App
    steps: DirectSteps
    setup: Setup
    calls: _CallRecorder

    def judge(self, records: Sequence[GoldRecord]) -> list[DocumentScore]:
        began = time.monotonic()
        requests = self._read(records)
        known = {
            record.id: one
            for record, one in zip(records, requests, strict=True)
            if not isinstance(one, Fault)
        }
        answers = dict(zip(known, self.steps.extract([*known], [*known.values()]), strict=True))
        each = (time.monotonic() - began) / len(records)
        return [
            self._judge_one(record, one, answers.get(record.id), each)
            for record, one in zip(records, requests, strict=True)
        ]

    def _read(self, records: Sequence[GoldRecord]) -> list[ExtractionRequest | Fault]:
        of_files = [record for record in records if record.file is not None]
        references = [
            RawReference(None, one.url or path.name, path.stat().st_size, None, path=path)
            for one in of_files
            if (path := one.file) is not None
        ]
        parsed = dict(
            zip((one.id for one in of_files), self.steps.parse([], references), strict=True)
        )
        return [self._request(record, parsed.get(record.id)) for record in records]

    def _request(self, record: GoldRecord, parsed: Any) -> ExtractionRequest | Fault:
        if isinstance(parsed, Fault):
            return parsed
        text, title, metadata = record.text or "", record.title, dict(record.metadata)
        if parsed is not None:
            text, title = parsed.text, record.title or parsed.title
            metadata = {**parsed.metadata, **metadata}
        detected = self._detect(text, title, metadata)
        profile = self.setup.profile or record.profile or detected
        return ExtractionRequest(text, profile, title, metadata, record.id, profile_reason=detected)

    def _detect(self, text: str, title: str | None, metadata: Mapping[str, Any]) -> str:
        stated = metadata.get("schema_type")
        by_class = choose_by_class([stated] if isinstance(stated, str) else [], None)
        return by_class.profile if by_class else detect_profile(text, title).profile

    def _judge_one(
        self,
        record: GoldRecord,
        request: ExtractionRequest | Fault,
        answer: ExtractionResult | None,
        each: float,
    ) -> DocumentScore:
        if isinstance(request, Fault):
            profile = self.setup.profile or record.profile or "document"
            fields = score_fields(profile, record.fields, {}, {})
            return DocumentScore(record.id, profile, fields, _outcome(request), seconds=each)
        found = self._shown(answer) if isinstance(answer, Extraction) else None
        fields = score_fields(
            request.profile,
            record.fields,
            found.fields if found else {},
            found.evidence if found else {},
        )
        calls = self.calls.calls.get(record.id, [])
        sure = found.confidence if found else None
        return DocumentScore(
            record.id,
            request.profile,
            fields,
            _outcome(answer),
            sure,
            sure is not None and sure < self.app.settings.extraction.confidence_threshold,
            request.profile_reason,
            sum(call.seconds for call in calls) if calls else each,
            _tokens(calls),
            len(calls),
            sum(call.cost_usd for call in calls),
        )

    def _shown(self, answer: Extraction) -> Extraction:
        if self.setup.uncapped:
            return answer
        return replace(answer, fields=cap_fields(answer.fields, self.app.caps))


def _outcome(answer: ExtractionResult | None) -> str:
    if isinstance(answer, Fault):
        return f"failed: {answer.message}"
    return f"skipped: {answer.reason}" if isinstance(answer, ExtractionSkipped) else "ready"


def _tokens(calls: Sequence[ModelCall]) -> tuple[int, int, int]:
    return (
        sum(call.prompt_tokens for call in calls),
        sum(call.completion_tokens for call in calls),
        sum(call.cached_tokens for call in calls),
    )


@dataclass(frozen=True, slots=True)
class Change:
    """A document that scores otherwise under another setup."""

    id: str
    before: float
    after: float
    fields: Mapping[str, tuple[float, float]]
    """The soft F1 of the fields that changed, before and after."""

    def as_json(self) -> dict[str, Any]:
        fields = {name: [rounded(one), rounded(two)] for name, (one, two) in self.fields.items()}
        return {
            "id": self.id,
            "before": rounded(self.before),
            "after": rounded(self.after),
            "fields": fields,
        }


@dataclass(frozen=True, slots=True)
class Changes:
    """How one evaluation differs from another of the same documents."""

    better: tuple[Change, ...]
    """The largest change first."""
    worse: tuple[Change, ...]
    same: int
    missing: int
    """Documents that are in one of them only."""

    def as_json(self) -> dict[str, Any]:
        return {
            "better": [one.as_json() for one in self.better],
            "worse": [one.as_json() for one in self.worse],
            "same": self.same,
            "missing": self.missing,
        }


# A smaller difference is none: of a long text, a word or two.
_LEAST_CHANGE = 0.005


def compare_evaluations(before: Evaluation, after: Evaluation) -> Changes:
    """Which documents got better, and which worse."""
    old, new = ({one.id: one for one in side.documents} for side in (before, after))
    both = [name for name in new if name in old]
    changes = [_change(old[name], new[name]) for name in both]
    better = [one for one in changes if one.after - one.before > _LEAST_CHANGE]
    worse = [one for one in changes if one.before - one.after > _LEAST_CHANGE]
    return Changes(
        tuple(sorted(better, key=lambda one: one.before - one.after)),
        tuple(sorted(worse, key=lambda one: one.after - one.before)),
        len(both) - len(better) - len(worse),
        len({*old} ^ {*new}),
    )


def _change(before: DocumentScore, after: DocumentScore) -> Change:
    fields = {
        name: (one.soft or 0.0, score.soft or 0.0)
        for name, score in after.fields.items()
        if (one := before.fields.get(name)) is not None and one.soft != score.soft
    }
    return Change(after.id, before.score or 0.0, after.score or 0.0, fields)
