"""Corrections that people made: how they change what was extracted, and what needs review then."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from penstock.documents import Evidence, Extraction, FieldEvidence, Match
from penstock.llm.answers import FallbackReason
from penstock.llm.evidence import record_confidence
from penstock.llm.profiles import Profile
from penstock.store.database import Tx
from penstock.store.schema import corrections, nodes

MOST_VALUE = 10
_REASONS = {
    FallbackReason.LOW_CONFIDENCE: "confidence is low",
    "missing": "{} is missing",
    "unsupported": "{} is not supported by the text",
    "outdated_correction": "the correction of {} was made for an earlier text or another profile",
}


@dataclass(frozen=True, slots=True)
class Correction:
    """What a person said the value of a field is; the value before, if it was accepted."""

    profile: str
    field: str
    value: Any
    before: Any
    author: str
    reason: str | None
    text_hash: str
    corrected_at: datetime


@dataclass(frozen=True, slots=True)
class CorrectedRecord:
    """What a node shows: what was extracted, with the corrections that hold for its text."""

    profile: Profile
    fields: Mapping[str, Any]
    evidence: Mapping[str, FieldEvidence]
    confidence: float
    held: frozenset[str]
    """Fields whose correction holds."""
    outdated: tuple[str, ...]
    """Fields whose corrections were all made for another text or profile."""

    def reasons(self, threshold: float) -> list[str]:
        """Why a person should look at it; nothing when it can be relied on."""
        doubt = [str(FallbackReason.LOW_CONFIDENCE)] if self.confidence < threshold else []
        missing = [name for name in self.profile.missing(self.fields) if name not in self.held]
        unsupported = [name for name, one in self.evidence.items() if one.unsupported]
        return [
            *doubt,
            *(f"missing:{name}" for name in missing),
            *(f"unsupported:{name}" for name in unsupported),
            *outdated_reasons(self.outdated),
        ]

    @property
    def value_of_review(self) -> int:
        """How much is gained by a review: more, the less sure the least sure required field is;
        most when it is missing, or when a person has cared for the record before."""
        if self.outdated:
            return MOST_VALUE
        sure = [self._confidence_in(name) for name in self.profile.required]
        return MOST_VALUE - int(MOST_VALUE * min(sure, default=self.confidence))

    def _confidence_in(self, name: str) -> float:
        return self.evidence[name].confidence if name in self.evidence else 0.0

    def columns(self, threshold: float) -> dict[str, Any]:
        """Of its node."""
        reasons = self.reasons(threshold)
        return {
            "fields": dict(self.fields),
            "evidence": {name: one.to_json() for name, one in self.evidence.items()},
            "extraction_confidence": self.confidence,
            **review_columns(reasons, self.value_of_review),
        }


def review_columns(reasons: Sequence[str], value: int) -> dict[str, Any]:
    """Of a node that needs review for these reasons, or for none."""
    return {
        "needs_review": bool(reasons),
        "review_reasons": list(reasons),
        "review_value": value if reasons else None,
    }


def outdated_reasons(fields: Collection[str]) -> list[str]:
    return [f"outdated_correction:{name}" for name in fields]


def describe_reason(reason: str) -> str:
    """In words, for people."""
    kind, _, field = reason.partition(":")
    return _REASONS.get(kind, reason).format(field)


def lock_nodes(tx: Tx, node_ids: Collection[str]) -> None:
    """Until the commit, nothing else changes these nodes; corrections read after this are all."""
    theirs = sa.select(nodes.c.id).where(tx.among(nodes.c.id, node_ids)).order_by(nodes.c.seq)
    tx.execute(theirs.with_for_update(key_share=True))


def read_corrections(tx: Tx, node_ids: Collection[str]) -> Mapping[str, list[Correction]]:
    """By node, the oldest first; an empty list of a node that has none."""
    c = corrections.c
    names = Correction.__dataclass_fields__
    query = sa.select(c.node_id, *[c[name] for name in names])
    found: defaultdict[str, list[Correction]] = defaultdict(list)
    for row in tx.execute(query.where(tx.among(c.node_id, node_ids)).order_by(c.node_id, c.id)):
        found[row.node_id].append(Correction(*row[1:]))
    return found


def holding(made: Sequence[Correction], profile: Profile, text_hash: str) -> dict[str, Correction]:
    """The corrections that hold for a text, by field: the newest of each."""
    known = profile.field_names
    return {
        one.field: one
        for one in made
        if (one.profile, one.text_hash) == (profile.name, text_hash) and one.field in known
    }


def find_outdated(made: Sequence[Correction], profile: Profile, text_hash: str) -> tuple[str, ...]:
    """The fields whose corrections were all made for another text or profile. A value that was only
    accepted is not missed: the new one is judged like any other."""
    held = holding(made, profile, text_hash)
    fields = dict.fromkeys(one.field for one in made if one.value != one.before)
    return tuple(name for name in fields if name in profile.field_names and name not in held)


def apply_corrections(
    profile: Profile, text_hash: str, extraction: Extraction, made: Sequence[Correction]
) -> CorrectedRecord:
    """What a node with this text shows after this extraction."""
    held = holding(made, profile, text_hash)
    evidence = dict(extraction.evidence)
    confidence = extraction.confidence
    if held:
        if not evidence:
            # Of an earlier version.
            evidence = {name: FieldEvidence(confidence) for name in extraction.fields}
        evidence |= {name: _evidence_of(one, extraction) for name, one in held.items()}
        if held.keys() >= set(profile.required):
            # Until then, the extraction may doubt that all was found, which no field shows.
            confidence = record_confidence(profile, evidence, confidence)
    return CorrectedRecord(
        profile,
        {**extraction.fields, **{name: one.value for name, one in held.items()}},
        evidence,
        confidence,
        frozenset(held),
        find_outdated(made, profile, text_hash),
    )


def _evidence_of(one: Correction, extraction: Extraction) -> FieldEvidence:
    """Where the value was found, if it was; else who said so."""
    said = Evidence(Match.CORRECTED, quote=f"corrected by {one.author}")
    found = extraction.evidence.get(one.field)
    if found is not None and extraction.fields.get(one.field) == one.value:
        return FieldEvidence(1.0, tuple(place or said for place in found.places))
    values = one.value if isinstance(one.value, list) else [one.value]
    return FieldEvidence(1.0, tuple(said for value in values if value is not None))
