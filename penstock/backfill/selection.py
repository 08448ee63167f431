"""Which nodes a backfill is for, and the stage each of them needs first."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

import sqlalchemy as sa

from penstock.documents import Stage
from penstock.errors import NotFound, UsageError
from penstock.operations.nodes import NODE_COLUMNS
from penstock.runs.up_to_date import (
    HAS_TEXT,
    HAS_VECTOR,
    USUAL,
    Reason,
    Target,
    any_of,
    join_results,
    stage_needs,
)
from penstock.sources.catalogue import read_source
from penstock.store.schema import ACTIVE_ITEM, nodes, sources, work_items

if TYPE_CHECKING:
    from penstock.app import App

LONGEST_DAYS = 36_500


def _tupled(value: Any) -> Any:
    """Lists of lists, as JSON has them, as tuples."""
    return tuple(map(_tupled, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Selection:
    """Build it with `choose_nodes`, which checks it."""

    target: Target
    reasons: tuple[Reason, ...] = USUAL
    tenant_id: str | None = None
    """None: of all tenants, which is for operators alone."""
    source: str | None = None
    stale_days: float | None = None
    limit: int | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        reasons = tuple(Reason(name) for name in value["reasons"])
        target = {name: _tupled(one) for name, one in value["target"].items()}
        return cls(**{**value, "target": Target(**target), "reasons": reasons})

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


def choose_nodes(
    app: "App",
    tenant: str | None,
    *,
    all_tenants: bool = False,
    source: str | None = None,
    reasons: Collection[str] | None = None,
    stale_days: float | None = None,
    limit: int | None = None,
) -> Selection:
    """A selection for these settings; UsageError or NotFound when it makes no sense.

    Without reasons: the usual ones, and `stale` if it is said after how many days a node is.
    """
    if all_tenants == bool(tenant):
        raise UsageError("name a tenant, or ask for all tenants: one of the two")
    extraction, tenant_id = app.settings.extraction, tenant or None
    name = None if source is None else _source_name(app, source, tenant_id)
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit}: it has to be at least 1")
    if stale_days is not None and not 0 <= stale_days <= LONGEST_DAYS:
        raise UsageError(f"stale_days is {stale_days:g}: it has to be from 0 to {LONGEST_DAYS}")
    chosen = {_reason(one) for one in reasons or ()}
    if not chosen:
        chosen = set(USUAL) | ({Reason.STALE} if stale_days is not None else set())
    if (Reason.STALE in chosen) != (stale_days is not None):
        raise UsageError(
            "the reason stale and the number of days after which a node is stale belong "
            "together: give both, or neither"
        )
    ordered = tuple(reason for reason in Reason if reason in chosen)
    models = app.extraction_models if Reason.EXTRACTOR in chosen else ()
    target = Target(
        extraction.version,
        app.embedder.identity,
        extraction.enabled,
        models,
        app.settings.embedding.passage_chars,
        app.profile_hashes,
    )
    return Selection(target, ordered, tenant_id, name, stale_days, limit)


def _reason(name: str) -> Reason:
    try:
        return Reason(name)
    except ValueError:
        known = ", ".join(Reason)
        raise UsageError(f"{name!r} is not a reason: use some of {known}") from None


def _source_name(app: "App", source: str, tenant_id: str | None) -> str:
    """The name of a source that is given by its name or, with a tenant, its location."""
    with app.database.read() as tx:
        if tenant_id is not None:
            return read_source(tx, tenant_id, source).name
        named = sa.select(sources.c.id).where(sources.c.name == source).limit(1)
        if tx.execute(named).first() is None:
            raise NotFound(f"no tenant has a source {source!r}")
    return source


_c = nodes.c


def find_candidates(selection: Selection, now: datetime, *, after: int) -> sa.Select[Any]:
    """Nodes behind this `seq` that need something and have no active job that leads to it.

    Columns: `NODE_COLUMNS`, `seq`, `embedding_status`, `stage`, `has_text`, `has_vector`, and one
    for each reason. Never nodes that have expired.
    """
    stale_before = now - timedelta(days=selection.stale_days or 0)
    needs = {
        reason: stage_needs(reason, selection.target, stale_before=stale_before)
        for reason in selection.reasons
    }
    need = any_of(needs.values())
    due = sa.or_(
        sa.and_(need.extract, ~_active(Stage.TEXT, Stage.EXTRACT)),
        sa.and_(need.embed, ~_active(*Stage)),
    )
    columns = (
        _c.seq,
        *NODE_COLUMNS,
        _c.embedding_status,
        HAS_TEXT.label("has_text"),
        HAS_VECTOR.label("has_vector"),
        need.first_stage.label("stage"),
        *[one.either.label(reason.value) for reason, one in needs.items()],
    )
    chosen = [_c.expired_at.is_(None), _c.seq > after, due]
    if selection.tenant_id is not None:
        chosen.append(_c.tenant_id == selection.tenant_id)
    if selection.source is not None:
        named = sa.select(sources.c.id).where(
            sources.c.name == selection.source, sources.c.tenant_id == _c.tenant_id
        )
        chosen.append(_c.source_id.in_(named))
    joined = join_results(selection.target, after=after)
    return sa.select(*columns).select_from(joined).where(*chosen)


def _active(*stages: Stage) -> sa.Exists:
    own = sa.exists().where(work_items.c.node_id == _c.id, ACTIVE_ITEM)
    return own if set(stages) == set(Stage) else own.where(work_items.c.stage.in_(stages))
