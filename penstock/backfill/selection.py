"""Which nodes a backfill is for, as whoever asks for it says it."""

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from penstock.errors import UsageError

LONGEST_DAYS = 36_500


class Reason(StrEnum):
    """Why a node is not as it should be."""

    OUTDATED = "outdated"
    """Extracted under another EXTRACTION_VERSION."""
    UNEXTRACTED = "unextracted"
    """Never extracted, though it should be."""
    FAILED = "failed"
    """Its extraction or its embedding failed."""
    VECTORS = "vectors"
    """It has no vector of the model that embeds now."""
    STALE = "stale"
    """Done longer ago than so many days."""


USUAL = tuple(reason for reason in Reason if reason is not Reason.STALE)


@dataclass(frozen=True, slots=True)
class Target:
    """What a node is brought up to: a backfill towards another target is another backfill."""

    extraction_version: str
    embedding_identity: str
    extracts_http: bool = False
    """Whether nodes that came over HTTP without a wish of their own are to be extracted."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Build it with `choose`, which checks it."""

    target: Target
    reasons: tuple[Reason, ...] = USUAL
    tenant_id: str | None = None
    """None: of all tenants, which is for operators alone."""
    source: str | None = None
    stale_days: float | None = None
    limit: int | None = None

    @classmethod
    def choose(
        cls,
        target: Target,
        *,
        tenant_id: str | None,
        source: str | None = None,
        reasons: Collection[str] | None = None,
        stale_days: float | None = None,
        limit: int | None = None,
    ) -> Self:
        """A selection that makes sense, or UsageError. Without reasons: all of them, `stale` only
        if it is said after how many days a node is."""
        _check_number("limit", limit, least=1)
        _check_number("stale_days", stale_days, least=0, most=LONGEST_DAYS)
        chosen = {_reason(name) for name in reasons or ()}
        if not chosen:
            chosen = set(USUAL) | ({Reason.STALE} if stale_days is not None else set())
        if (Reason.STALE in chosen) != (stale_days is not None):
            raise UsageError(
                "the reason stale and the number of days after which a node is stale belong "
                "together: give both, or neither"
            )
        ordered = tuple(reason for reason in Reason if reason in chosen)
        return cls(target, ordered, tenant_id, source, stale_days, limit)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        reasons = tuple(Reason(name) for name in value["reasons"])
        return cls(**{**value, "target": Target(**value["target"]), "reasons": reasons})

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "reasons": [str(reason) for reason in self.reasons]}

    @property
    def key(self) -> str:
        """Equal for equal selections."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()

    def differs_in_target_alone(self, other: "Selection") -> bool:
        mine, theirs = self.as_json(), other.as_json()
        return mine.pop("target") != theirs.pop("target") and mine == theirs

    def __str__(self) -> str:
        """As people see it, in the name of a flow run for example."""
        whose = self.tenant_id or "all tenants"
        where = f" source {self.source}" if self.source else ""
        return f"{whose}{where} {', '.join(self.reasons)}"


def _reason(name: str) -> Reason:
    try:
        return Reason(name)
    except ValueError:
        known = ", ".join(Reason)
        raise UsageError(f"{name!r} is not a reason: use some of {known}") from None


def _check_number(name: str, value: float | None, *, least: float, most: float = math.inf) -> None:
    if value is not None and not least <= value <= most:
        bounds = f"at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        raise UsageError(f"{name} is {value:g}: it has to be {bounds}")
