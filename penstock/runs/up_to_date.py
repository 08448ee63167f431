"""When a document is up to date, and which stage it needs first if not.

Two questions make up the answer. Do its bytes or its text differ from what was committed
(`Assessor`, for ingest)? And does its node lack a result (`stage_needs`, for ingest and backfill)?
The second is asked as SQL conditions over `join_results`, so that a backfill finds its nodes in the
database.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from penstock.crawl.fetch import Fetched, Marks, NotModified
from penstock.crawl.listing import Listed
from penstock.crawl.simhash import Duplicates, from_signed
from penstock.documents import Fault, Stage
from penstock.runs.compare import SAME_BYTES, Compared, find_sameness
from penstock.runs.run import Change
from penstock.store.database import Tx
from penstock.store.schema import UNDECIDED_CANARY, backfills, embeddings, nodes, texts

_c = nodes.c
_Condition = sa.ColumnElement[bool]
_NEVER: _Condition = sa.false()
_FROM_HTTP = _c.given.is_not(None)
HAS_TEXT: _Condition = texts.c.seq.is_not(None)
HAS_VECTOR: _Condition = embeddings.c.seq.is_not(None)
"""Of the embedder that embeds now."""

POSTING = b"JobPosting"


class Reason(StrEnum):
    """Why a node is not up to date."""

    OUTDATED = "outdated"
    """Extracted under another EXTRACTION_VERSION, with another schema or prompt of its profile, or
    for another profile than the wanted one. Not while a canary of its tenant is undecided."""
    UNEXTRACTED = "unextracted"
    """Not extracted, though it should be."""
    FAILED = "failed"
    """Its extraction or its embedding failed."""
    VECTORS = "vectors"
    """It has no vector of the model that embeds now."""
    PASSAGES = "passages"
    """Its text was cut by an earlier version, which had one vector for the beginning of it, or into
    passages of another length."""
    EXTRACTOR = "extractor"
    """Its fields were made by another extractor than the one that extracts now."""
    EVIDENCE = "evidence"
    """Extracted by a version that did not keep where each value stands."""
    STALE = "stale"
    """Done longer ago than so many days."""


# Not by another extractor: rules would replace, unasked, what models were paid for.
USUAL = (Reason.OUTDATED, Reason.UNEXTRACTED, Reason.FAILED, Reason.VECTORS, Reason.PASSAGES)


@dataclass(frozen=True, slots=True)
class Target:
    """What a node is brought up to."""

    extraction_version: str
    embedding_identity: str
    extracts_http: bool = False
    """Whether nodes that came over HTTP and do not say so themselves are to be extracted."""
    models: tuple[str, ...] = ()
    """Who extracts now, as a node's `extraction_model` names it."""
    passage_chars: int | None = None
    """The length of passages; None: texts may be cut in any way."""
    profile_hashes: tuple[tuple[str, str], ...] = ()
    """Of the schema and prompt of each profile as it is now."""


@dataclass(frozen=True, slots=True)
class StageNeeds:
    """Whether a node has to be extracted, and whether it has to be embedded."""

    extract: _Condition = _NEVER
    embed: _Condition = _NEVER

    @property
    def either(self) -> _Condition:
        return sa.or_(self.extract, self.embed)

    @property
    def first_stage(self) -> sa.ColumnElement[str | None]:
        return sa.case((self.extract, Stage.EXTRACT.value), (self.embed, Stage.EMBED.value))


def any_of(needs: Collection[StageNeeds]) -> StageNeeds:
    extracts, embeds = [one.extract for one in needs], [one.embed for one in needs]
    return StageNeeds(sa.or_(_NEVER, *extracts), sa.or_(_NEVER, *embeds))


def stage_needs(
    reason: Reason,
    target: Target,
    *,
    profile: str | None = None,
    stale_before: datetime | None = None,
) -> StageNeeds:
    """What a node needs for this reason. Without a `profile`, each node keeps its own."""
    match reason:
        case Reason.OUTDATED:
            return StageNeeds(extract=_is_outdated(target, profile))
        case Reason.UNEXTRACTED:
            return StageNeeds(extract=_is_unextracted(target))
        case Reason.FAILED:
            return StageNeeds(_c.extraction_status == "failed", _c.embedding_status == "failed")
        case Reason.EXTRACTOR:
            other = _c.extraction_model.not_in(target.models)
            return StageNeeds(extract=sa.and_(_c.extraction_status == "ready", other))
        case Reason.EVIDENCE:
            lacks = _c.evidence.is_(sa.null())
            return StageNeeds(extract=sa.and_(_c.extraction_status == "ready", lacks))
        case Reason.VECTORS:
            return StageNeeds(embed=_lacks_vector(target))
        case Reason.PASSAGES:
            return StageNeeds(embed=_is_cut_otherwise(target))
        case Reason.STALE:
            fields = sa.and_(_c.extraction_status == "ready", _c.extracted_at < stale_before)
            # Of nodes that are never extracted, the vectors are old.
            embedded = sa.and_(_c.extraction_status.is_(None), _c.embedding_status == "ready")
            return StageNeeds(fields, sa.and_(embedded, _c.embedded_at < stale_before))


def join_results(target: Target, *, after: int | None = None) -> sa.Join:
    """Nodes with their text and their vector of this target, if they have them.

    Joined, not asked for one by one: of a few nodes, Postgres would read all texts for that. And it
    does not see by itself that what is joined lies `after` the same `seq`.
    """
    text = texts.c.seq == _c.seq
    first = sa.and_(embeddings.c.seq == _c.seq, embeddings.c.position == 0)
    vector = sa.and_(first, embeddings.c.identity == target.embedding_identity)
    if after is not None:
        text = sa.and_(text, texts.c.seq > after)
        vector = sa.and_(vector, embeddings.c.seq > after)
    return nodes.outerjoin(texts, text).outerjoin(embeddings, vector)


def _is_outdated(target: Target, profile: str | None) -> _Condition:
    extracted = sa.or_(
        _c.extraction_version.is_not(None), _c.extraction_status.in_(("ready", "skipped"))
    )
    other: list[_Condition] = [_c.extraction_version.is_distinct_from(target.extraction_version)]
    # An answer without a hash was kept by an earlier version: it may well be the same.
    other += [
        sa.and_(_c.profile == name, _c.extraction_profile_hash != now)
        for name, now in target.profile_hashes
    ]
    changed = sa.and_(sa.or_(*other), ~_is_held())
    if profile is not None:
        changed = sa.or_(changed, _c.profile.is_distinct_from(profile))
    return sa.and_(extracted, changed)


def _is_held() -> sa.Exists:
    """Until a canary is promoted or discarded, records stay as they are."""
    of_tenant = backfills.c.tenant_id == _c.tenant_id
    return (
        sa.exists()
        .where(UNDECIDED_CANARY, sa.or_(backfills.c.tenant_id.is_(None), of_tenant))
        .correlate(nodes)
    )


def _is_unextracted(target: Target) -> _Condition:
    """Runs always extract. A node that came over HTTP says whether it wants that, or leaves it to
    the settings; a file of the embeddable worker is extracted only when it was asked for."""
    status = _c.extraction_status
    declined = sa.type_coerce(_c.given, sa.JSON())["extract"].as_boolean().is_(sa.false())
    wanted = sa.and_(_FROM_HTTP, sa.not_(declined)) if target.extracts_http else _NEVER
    never = sa.and_(status.is_(None), sa.or_(_c.source_id.is_not(None), wanted))
    # It was asked for, and the job is gone if none is active.
    return sa.or_(never, status.in_(("queued", "processing")))


def _lacks_vector(target: Target) -> _Condition:
    """Everything with a text has a vector; of the embeddable worker's files, those that were to be
    embedded. An older vector of this model may be of an older text."""
    status: sa.ColumnElement[Any] = _c.embedding_status
    wants = sa.or_(status.is_not(None), _c.source_id.is_not(None), _FROM_HTTP)
    lacks = sa.or_(
        ~HAS_VECTOR,
        _c.embedding_identity.is_distinct_from(target.embedding_identity),
        status.is_(None),
        status.not_in(("ready", "failed")),
    )
    return sa.and_(HAS_TEXT, wants, status.is_distinct_from("skipped"), lacks)


def _is_cut_otherwise(target: Target) -> _Condition:
    """Of those that have a vector; the others are cut when they get one."""
    if target.passage_chars is None:
        return _NEVER
    other = _c.passage_chars.is_distinct_from(target.passage_chars)
    return sa.and_(HAS_TEXT, _c.embedding_status == "ready", other)


@dataclass(frozen=True, slots=True)
class KnownNode:
    """The committed marks of a document, and whether it is up to date."""

    id: str
    marks: Marks
    missing_stage: Stage | None
    """The first stage that it needs although it is unchanged; None when it is up to date."""
    expired: bool


def find_known(
    tx: Tx, source_id: int, external_ids: Sequence[str], target: Target, profile: str | None
) -> dict[str, KnownNode]:
    """Known documents among these, by external id."""
    named = {"source": source_id, "external_ids": list(external_ids)}
    return {
        row.external_id: _known(row) for row in tx.execute(_known_query(target, profile), named)
    }


@lru_cache
def _known_query(target: Target, profile: str | None) -> sa.Select[Any]:
    """Building it takes longer than asking it."""
    need = any_of([stage_needs(reason, target, profile=profile) for reason in USUAL])
    names = ("id", "external_id", "etag", "last_modified", "content_hash", "simhash", "expired_at")
    among = _c.external_id.in_(sa.bindparam("external_ids", expanding=True))
    return (
        sa.select(*[_c[name] for name in names], need.first_stage.label("stage"))
        .select_from(join_results(target))
        .where(_c.source_id == sa.bindparam("source"), among)
    )


def hold_nodes(tx: Tx, node_ids: Collection[str]) -> set[str]:
    """Those of these nodes that exist, locked against deletion until the commit."""
    if not node_ids:
        return set()
    there = sa.select(_c.id).where(_c.id.in_(node_ids)).order_by(_c.seq)
    return set(tx.execute(there.with_for_update(read=True, key_share=True)).scalars())


def _known(row: sa.Row[tuple[object, ...]]) -> KnownNode:
    return KnownNode(
        id=row.id,
        marks=Marks(
            etag=row.etag,
            last_modified=row.last_modified,
            content_hash=row.content_hash,
            simhash=None if row.simhash is None else from_signed(row.simhash),
        ),
        missing_stage=None if row.stage is None else Stage(row.stage),
        expired=row.expired_at is not None,
    )


@dataclass(frozen=True, slots=True)
class Assessment:
    """What is to be done with one document of a run."""

    listed: Listed
    known: KnownNode | None
    change: Change
    stage: Stage | None = None
    """The stage to begin with; None when there is nothing to do."""
    reason: str | None = None
    fault: Fault | None = None
    stored: Compared | None = None
    """What was stored, to be parsed; its change marks are committed if processing succeeds."""
    renewed: Marks | None = None
    """What its source calls the same bytes now; the next run need not read them again."""
    left_out: bool = False
    """It is not a document of this source."""


@dataclass(frozen=True, slots=True)
class Forced:
    """What is processed although it is unchanged: everything, or named documents."""

    everything: bool = False
    names: frozenset[str] = frozenset()

    def covers(self, listed: Listed, known: KnownNode | None) -> bool:
        if self.everything:
            return True
        own = {listed.external_id, listed.url} | ({known.id} if known else set())
        return not own.isdisjoint(self.names)


@dataclass(frozen=True, slots=True)
class Assessor:
    """Decides what is to be done with what was fetched."""

    forced: Forced = Forced()
    only_postings: bool = False
    """Pages of the source without a job are not documents."""

    def marks(self, listed: Listed, known: KnownNode | None) -> Marks | None:
        """What to compare the document with; None when it is processed however it compares."""
        return None if known is None or self.forced.covers(listed, known) else known.marks

    def leave_out(self, listed: Listed, known: KnownNode | None, got: Fetched) -> Assessment | None:
        """For a page that is not a document of its source."""
        if not self.only_postings or POSTING in got.content:
            return None
        why = "left out: the page holds no JobPosting"
        return Assessment(listed, known, Change.SAME, reason=why, left_out=True)

    def assess(
        self, listed: Listed, known: KnownNode | None, got: Compared | NotModified | Fault
    ) -> Assessment:
        if isinstance(got, Fault):
            change = Change.NEW if known is None else Change.SAME
            return Assessment(listed, known, change, reason=got.message, fault=got)
        if isinstance(got, NotModified):
            return self._unchanged(listed, known, "not modified")
        if got.same is not None:
            unchanged = self._unchanged(listed, known, got.same)
            return replace(unchanged, renewed=_renewed(known, got))
        return Assessment(listed, known, _change(known, got), stage=Stage.TEXT, stored=got)

    def _unchanged(self, listed: Listed, known: KnownNode | None, how: str) -> Assessment:
        """Nothing to do, or a later stage only. The old marks stay, so that many small changes
        cannot add up to a large one that is never noticed."""
        stage = None if known is None else known.missing_stage
        if stage is None:
            return Assessment(listed, known, Change.SAME, reason=f"unchanged ({how})")
        return Assessment(listed, known, Change.SAME, stage=stage)


def _change(known: KnownNode | None, got: Compared) -> Change:
    """Of what is processed: if that was asked for, it may be the same all the same."""
    if known is None:
        return Change.NEW
    return Change.SAME if find_sameness(known.marks, got.marks) else Change.CHANGED


def _renewed(known: KnownNode | None, got: Compared) -> Marks | None:
    """The marks of the same bytes, where their source calls them by another name now."""
    if known is None or got.same != SAME_BYTES:
        return None
    now = replace(known.marks, etag=got.marks.etag, last_modified=got.marks.last_modified)
    return None if now == known.marks else now


def note_duplicate(assessed: Assessment, duplicates: Duplicates) -> Assessment:
    """Name the document of this run that is the same or nearly the same, if there is one."""
    if assessed.stored is None:
        return assessed
    marks = assessed.stored.marks
    twin = duplicates.check(assessed.listed.external_id, marks.content_hash or "", marks.simhash)
    if twin is None:
        return assessed
    kind = "duplicate" if twin.distance == 0 else "near-duplicate"
    return replace(assessed, reason=f"{kind} of {twin.external_id}")
