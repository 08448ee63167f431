"""The nodes that a selection finds, and the stage that each of them needs first."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from penstock.backfill.selection import Reason, Selection
from penstock.documents import Stage
from penstock.operations.beginnings import TEXT_COLUMNS
from penstock.store.schema import ACTIVE_ITEM, embeddings, nodes, sources, texts, work_items

_c = nodes.c
_HAS_TEXT = texts.c.seq.is_not(None)
_HAS_VECTOR = embeddings.c.seq.is_not(None)
_FROM_HTTP = _c.given.is_not(None)
_UNDER_WAY = ("queued", "processing")
_Condition = sa.ColumnElement[bool]
_NEVER: _Condition = sa.false()


@dataclass(frozen=True, slots=True)
class _Need:
    """What one reason asks for."""

    extract: _Condition = _NEVER
    embed: _Condition = _NEVER

    @property
    def either(self) -> _Condition:
        return sa.or_(self.extract, self.embed)


def find_candidates(selection: Selection, now: datetime, *, after: int) -> sa.Select[Any]:
    """Nodes behind this `seq` that need something and are not already on their way to it.

    Columns: what `beginnings` must know of a node, `seq`, `tenant_id`, `stage`, `has_text`,
    `has_vector`, and one for each reason. Never nodes that have expired.
    """
    needs = {reason: _need(reason, selection, now) for reason in selection.reasons}
    extract = sa.or_(_NEVER, *[need.extract for need in needs.values()])
    embed = sa.or_(_NEVER, *[need.embed for need in needs.values()])
    # Whatever is active at this stage, or at one before it, leads to what is needed.
    due = sa.or_(
        sa.and_(extract, ~_active(Stage.TEXT, Stage.EXTRACT)), sa.and_(embed, ~_active(*Stage))
    )
    columns = (
        _c.seq,
        _c.tenant_id,
        *TEXT_COLUMNS,
        _c.embedding_status,
        _HAS_TEXT.label("has_text"),
        _HAS_VECTOR.label("has_vector"),
        sa.case((extract, Stage.EXTRACT.value), else_=Stage.EMBED.value).label("stage"),
        *[need.either.label(reason.value) for reason, need in needs.items()],
    )
    return (
        sa.select(*columns)
        .select_from(_joined(selection, after))
        .where(*_of(selection), _c.seq > after, due)
    )


def _joined(selection: Selection, after: int) -> sa.Join:
    """Joined, not asked for one by one: of a few nodes, Postgres would read all texts for that.
    And it does not see by itself that what is joined lies behind the same place."""
    identity = embeddings.c.identity == selection.target.embedding_identity
    text = sa.and_(texts.c.seq == _c.seq, texts.c.seq > after)
    vector = sa.and_(embeddings.c.seq == _c.seq, embeddings.c.seq > after, identity)
    return nodes.outerjoin(texts, text).outerjoin(embeddings, vector)


def _of(selection: Selection) -> list[_Condition]:
    found: list[_Condition] = [_c.expired_at.is_(None)]
    if selection.tenant_id is not None:
        found.append(_c.tenant_id == selection.tenant_id)
    if selection.source is not None:
        named = sa.select(sources.c.id).where(
            sources.c.name == selection.source, sources.c.tenant_id == _c.tenant_id
        )
        found.append(_c.source_id.in_(named))
    return found


def _need(reason: Reason, selection: Selection, now: datetime) -> _Need:
    match reason:
        case Reason.OUTDATED:
            return _Need(extract=_c.extraction_version != selection.target.extraction_version)
        case Reason.UNEXTRACTED:
            return _Need(extract=_is_unextracted(selection))
        case Reason.FAILED:
            failed = (_c.extraction_status == "failed", _c.embedding_status == "failed")
            return _Need(*failed)
        case Reason.VECTORS:
            return _Need(embed=sa.and_(_wants_vector(), ~_HAS_VECTOR))
        case Reason.STALE:
            return _is_stale(now - timedelta(days=selection.stale_days or 0))


def _is_unextracted(selection: Selection) -> _Condition:
    """Runs always extract. Whoever brings a node over HTTP may not want it, and whoever hands a
    file to the embeddable worker says for each what is to be done."""
    unwilling = _from_given("extract").as_boolean().is_(sa.false())
    wanted = sa.and_(_FROM_HTTP, sa.not_(unwilling)) if selection.target.extracts_http else _NEVER
    status = _c.extraction_status
    never = sa.and_(status.is_(None), sa.or_(_c.source_id.is_not(None), wanted))
    # It was asked for, and whoever was to do it is gone.
    lost = status.in_(_UNDER_WAY)
    return sa.and_(_c.extraction_version.is_(None), sa.or_(never, lost))


def _wants_vector() -> _Condition:
    """Everything with a text; of the embeddable worker's files, those that were embedded."""
    status = _c.embedding_status
    not_empty = sa.or_(status.is_(None), status != "skipped")
    asked_for = sa.or_(_c.source_id.is_not(None), _FROM_HTTP, status.is_not(None))
    return sa.and_(_HAS_TEXT, not_empty, asked_for)


def _is_stale(before: datetime) -> _Need:
    """Old answers; of nodes that are never extracted, old vectors."""
    fields = sa.and_(_c.extraction_status == "ready", _c.extracted_at < before)
    only_embedded = sa.and_(_c.extraction_status.is_(None), _c.embedding_status == "ready")
    return _Need(fields, sa.and_(only_embedded, _c.embedded_at < before))


def _active(*stages: Stage) -> sa.Exists:
    own = sa.exists().where(work_items.c.node_id == _c.id, ACTIVE_ITEM)
    return own if set(stages) == set(Stage) else own.where(work_items.c.stage.in_(stages))


def _from_given(name: str) -> Any:
    return sa.type_coerce(_c.given, sa.JSON())[name]
