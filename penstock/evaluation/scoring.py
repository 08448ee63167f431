"""Scores of documents and what they add up to: precision, recall and F1 of each field, and how far
confidences can be relied on."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from statistics import mean
from typing import Any, NamedTuple, Self

from penstock.documents import FieldEvidence
from penstock.evaluation.comparison import (
    TOGETHER,
    Counts,
    Kind,
    Level,
    compare,
    is_right,
    kind_of,
    known_fields,
    values_of,
    words,
)
from penstock.llm.profiles import profile_named

# The curve of confidences has so many steps.
STEPS = 10


class JudgedValue(NamedTuple):
    """A value that was found, how sure its field is, and whether it is right."""

    confidence: float | None
    right: bool


@dataclass(frozen=True, slots=True)
class FieldScore:
    """How one field of one document compares with what is right."""

    kind: Kind
    counts: Mapping[Level, Counts]
    values: tuple[JudgedValue, ...] = ()

    @property
    def soft(self) -> float | None:
        """The F1 of its words; None when there is nothing to find and nothing was found."""
        return self.counts[Level.SOFT].f1

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": str(self.kind),
            **{str(level): list(counts) for level, counts in self.counts.items()},
            "values": [list(one) for one in self.values],
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        return cls(
            Kind(stored["kind"]),
            {level: Counts(*stored[level]) for level in Level},
            tuple(JudgedValue(*one) for one in stored["values"]),
        )


def score_fields(
    profile: str,
    wanted: Mapping[str, Any],
    found: Mapping[str, Any],
    evidence: Mapping[str, FieldEvidence],
) -> dict[str, FieldScore]:
    """The score of each field that is labelled and that the profile has."""
    whole = profile_named(profile)
    scores = {
        name: _score(kind_of(whole, name), wanted[name], found.get(name), evidence.get(name))
        for name in known_fields(whole)
        if name in wanted
    }
    for names in TOGETHER.get(profile, ()):
        if all(name in wanted for name in names):
            right, got = (" ".join(words([one.get(n) for n in names])) for one in (wanted, found))
            scores[" + ".join(names)] = FieldScore(Kind.TEXT, compare(Kind.TEXT, right, got))
    return scores


def _score(kind: Kind, wanted: Any, found: Any, evidence: FieldEvidence | None) -> FieldScore:
    sure = None if evidence is None else evidence.confidence
    judged = (JudgedValue(sure, is_right(kind, one, wanted)) for one in values_of(found))
    return FieldScore(kind, compare(kind, wanted, found), tuple(judged))


@dataclass(frozen=True, slots=True)
class DocumentScore:
    """What came of one labelled document."""

    id: str
    profile: str
    fields: Mapping[str, FieldScore]
    outcome: str = "ready"
    """Or why there are no fields: `skipped: …`, `failed: …`."""
    confidence: float | None = None
    needs_review: bool = False
    """Its confidence is below the threshold."""
    detected: str | None = None
    """The profile that its content shows."""
    seconds: float = 0.0
    tokens: tuple[int, int, int] = (0, 0, 0)
    """Of prompts, of answers, and of prompts that the provider had cached."""
    calls: int = 0
    cost_usd: float = 0.0

    @property
    def score(self) -> float | None:
        """The mean of its fields' soft F1."""
        known = [one.soft for one in self.fields.values() if one.soft is not None]
        return mean(known) if known else None

    def as_json(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__ if name != "fields"}
        shown = {name: one.as_json() for name, one in self.fields.items()}
        return values | {"score": rounded(self.score), "fields": shown}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        values = {name: stored[name] for name in cls.__slots__}
        fields = {name: FieldScore.from_json(one) for name, one in stored["fields"].items()}
        return cls(**values | {"fields": fields, "tokens": tuple(stored["tokens"])})


@dataclass(frozen=True, slots=True)
class FieldSummary:
    """One field over all documents for which it is labelled."""

    kind: Kind
    documents: int
    counts: Mapping[Level, Counts]
    mean_soft: float | None
    """The mean of the documents' soft F1."""
    worst_soft: float | None
    any_right: float | None
    """Of a list: the share of documents with at least one right value, where there is one."""
    said: float | None
    """The mean confidence of the values that were found."""
    right: float | None
    """The share of these that is right."""

    @classmethod
    def of(cls, scores: Sequence[FieldScore]) -> Self:
        counts = {
            level: reduce(Counts.plus, (one.counts[level] for one in scores), Counts())
            for level in Level
        }
        soft = [one.soft for one in scores if one.soft is not None]
        kind = scores[0].kind
        labelled = [one for one in scores if one.counts[Level.EXACT].wanted]
        hits = [any(value.right for value in one.values) for one in labelled]
        sure = [value for one in scores for value in one.values if value.confidence is not None]
        return cls(
            kind,
            len(scores),
            counts,
            mean(soft) if soft else None,
            min(soft, default=None),
            mean(hits) if hits and kind is Kind.LIST else None,
            mean(value.confidence or 0.0 for value in sure) if sure else None,
            mean(value.right for value in sure) if sure else None,
        )

    def as_json(self) -> dict[str, Any]:
        levels = {
            str(level): {
                name: rounded(getattr(one, name)) for name in ("precision", "recall", "f1")
            }
            for level, one in self.counts.items()
        }
        return {
            "kind": str(self.kind),
            "documents": self.documents,
            **levels,
            "mean_soft_f1": rounded(self.mean_soft),
            "worst_soft_f1": rounded(self.worst_soft),
            "any_right": rounded(self.any_right),
            "said": rounded(self.said),
            "right": rounded(self.right),
        }


def summarise_fields(documents: Iterable[DocumentScore]) -> dict[str, dict[str, FieldSummary]]:
    """By profile, then by field."""
    found: defaultdict[str, defaultdict[str, list[FieldScore]]]
    found = defaultdict(lambda: defaultdict(list))
    for document in documents:
        for name, score in document.fields.items():
            found[document.profile][name].append(score)
    return {
        profile: {name: FieldSummary.of(scores) for name, scores in fields.items()}
        for profile, fields in found.items()
    }


class CurveStep(NamedTuple):
    """Values that are about as sure as each other."""

    low: float
    high: float
    values: int
    said: float
    """Their mean confidence."""
    right: float
    """The share of them that is right."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How far confidences can be relied on: of ten values said 0.9, nine should be right."""

    steps: tuple[CurveStep, ...] = ()
    error: float | None = field(default=None)
    """How far a confidence is from the share that is right, on average over all values."""

    @classmethod
    def of(cls, documents: Iterable[DocumentScore]) -> Self:
        judged = sorted(_judged_values(documents))
        if not judged:
            return cls()
        steps = [step for number in range(STEPS) if (step := _step(number, judged))]
        off = sum(one.values * abs(one.said - one.right) for one in steps) / len(judged)
        return cls(tuple(steps), off)

    def as_json(self) -> dict[str, Any]:
        steps = [
            {name: rounded(value) for name, value in one._asdict().items()} for one in self.steps
        ]
        return {"error": rounded(self.error), "steps": steps}


def _judged_values(documents: Iterable[DocumentScore]) -> Iterator[tuple[float, bool]]:
    for document in documents:
        for score in document.fields.values():
            for value in score.values:
                if value.confidence is not None:
                    yield value.confidence, value.right


def _step(number: int, judged: Sequence[tuple[float, bool]]) -> CurveStep | None:
    of_step = [one for one in judged if min(int(one[0] * STEPS), STEPS - 1) == number]
    if not of_step:
        return None
    said, right = mean(sure for sure, _ in of_step), mean(right for _, right in of_step)
    return CurveStep(number / STEPS, (number + 1) / STEPS, len(of_step), said, right)


def rounded(value: float | None) -> float | None:
    """As reports have it."""
    return None if value is None else round(value, 4)
