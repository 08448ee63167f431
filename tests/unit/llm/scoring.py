"""Labelled samples, and how near an extraction comes to their labels."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from penstock.documents import Extraction, ExtractionRequest
from penstock.rules import RulesExtractor

TODAY = date(2025, 6, 15)
SAMPLES = Path(__file__).parent / "samples"
_PROSE = {"description", "summary"}


@dataclass(frozen=True)
class Sample:
    name: str
    request: ExtractionRequest
    expected: Mapping[str, Any]


@dataclass(frozen=True)
class Score:
    sample: Sample
    confidence: float
    fields: Mapping[str, float]

    @property
    def mean(self) -> float:
        return mean(self.fields.values())


def load_samples(profile: str) -> list[Sample]:
    paths = sorted((SAMPLES / profile).glob("*.txt"))
    return [_load(path, profile) for path in paths]


def score_samples(profile: str) -> list[Score]:
    samples = load_samples(profile)
    outcomes = RulesExtractor(today=TODAY).extract([sample.request for sample in samples])
    return [_score(sample, found) for sample, found in zip(samples, outcomes, strict=True)]


def mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0


def f1(found: Iterable[str], expected: Iterable[str]) -> float:
    got, want = {item.casefold() for item in found}, {item.casefold() for item in expected}
    if not got and not want:
        return 1.0
    return 2 * len(got & want) / (len(got) + len(want))


def years_of(value: Any) -> float | None:
    numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", str(value))]
    return mean(numbers) if numbers else None


def _load(path: Path, profile: str) -> Sample:
    label = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    request = ExtractionRequest(
        text=path.read_text(encoding="utf-8"),
        profile=profile,
        title=label.get("title"),
        metadata=label.get("metadata", {}),
    )
    return Sample(path.stem, request, label["expected"])


def _score(sample: Sample, outcome: object) -> Score:
    assert isinstance(outcome, Extraction), f"{sample.name}: {outcome}"
    scores = {
        name: _field_score(name, outcome.fields[name], wanted)
        for name, wanted in sample.expected.items()
        # Where there was nothing to find and nothing was found, nothing was shown.
        if wanted or outcome.fields[name]
    }
    return Score(sample, outcome.confidence, scores)


def _field_score(name: str, found: Any, wanted: Any) -> float:
    if name == "years_experience_total":
        got, want = years_of(found), years_of(wanted)
        return float(got is not None and want is not None and abs(got - want) <= 1)
    if isinstance(wanted, list) or isinstance(found, list):
        return f1(found or [], wanted or [])
    if name in _PROSE:
        return f1(re.findall(r"\w+", found or ""), re.findall(r"\w+", wanted or ""))
    return float(_plain(found) == _plain(wanted))


def _plain(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value
