"""Decides what one fetched document needs: everything, a later stage only, or nothing."""

import hashlib
from dataclasses import dataclass, replace

from penstock.crawl.duplicates import DuplicateOf, Duplicates
from penstock.crawl.fetch import Fetched, Marks, NotModified
from penstock.crawl.listing import Listed
from penstock.crawl.simhash import distance, simhash, visible_text
from penstock.documents import Fault, RawDocument, Stage
from penstock.runs.known import Current, KnownNode
from penstock.runs.vocabulary import Change
from penstock.text.kinds import detect_media_type

SAME_DISTANCE = 3
POSTING = b"JobPosting"


@dataclass(frozen=True, slots=True)
class Assessment:
    """One document of a run, and what is to be done with it."""

    listed: Listed
    known: KnownNode | None
    change: Change
    stage: Stage | None = None
    """The stage to begin with; None when there is nothing to do."""
    reason: str | None = None
    fault: Fault | None = None
    content: bytes = b""
    media_type: str | None = None
    marks: Marks | None = None
    """What will be committed as change marks if processing succeeds."""
    left_out: bool = False
    """It turned out not to be a document of this source."""


@dataclass(frozen=True, slots=True)
class Forced:
    """What is processed although it is unchanged: everything, or documents by their names."""

    everything: bool = False
    names: frozenset[str] = frozenset()

    def covers(self, listed: Listed, known: KnownNode | None) -> bool:
        if self.everything:
            return True
        own = {listed.external_id, listed.url} | ({known.id} if known else set())
        return not own.isdisjoint(self.names)


@dataclass(frozen=True, slots=True)
class Assessor:
    """Compares what was fetched with what is known."""

    current: Current
    forced: Forced = Forced()
    only_postings: bool = False
    """Pages of the source that offer no job are none of its documents."""

    def assess(
        self, listed: Listed, known: KnownNode | None, got: Fetched | NotModified | Fault
    ) -> Assessment:
        if isinstance(got, Fault):
            change = Change.NEW if known is None else Change.SAME
            return Assessment(listed, known, change, reason=got.message, fault=got)
        if isinstance(got, NotModified):
            return self._unchanged(listed, known, "not modified")
        if self.only_postings and POSTING not in got.content:
            why = "left out: the page holds no JobPosting"
            return Assessment(listed, known, Change.SAME, reason=why, left_out=True)
        content_hash = hashlib.sha256(got.content).hexdigest()
        old = None if known is None or self.forced.covers(listed, known) else known.marks
        if old is not None and old.content_hash == content_hash:
            return self._unchanged(listed, known, "same bytes")
        marks = _marks_of(listed, got, content_hash)
        if old is not None and (same := _same_text(old, marks)):
            return self._unchanged(listed, known, same)
        return Assessment(
            listed,
            known,
            Change.NEW if known is None else Change.CHANGED,
            stage=Stage.TEXT,
            content=got.content,
            media_type=got.media_type,
            marks=marks,
        )

    def _unchanged(self, listed: Listed, known: KnownNode | None, how: str) -> Assessment:
        """Nothing to do, or a later stage only. The old marks stay, so that many small changes
        cannot add up to a large one unseen."""
        stage = None if known is None else self.current.missing_stage(known)
        if stage is None:
            return Assessment(listed, known, Change.SAME, reason=f"unchanged ({how})")
        return Assessment(listed, known, Change.SAME, stage=stage)


def _marks_of(listed: Listed, got: Fetched, content_hash: str) -> Marks:
    raw = RawDocument(listed.external_id, got.content, got.media_type)
    is_html = detect_media_type(raw) == "text/html"
    return Marks(
        etag=got.etag,
        last_modified=got.last_modified,
        content_hash=content_hash,
        simhash=simhash(visible_text(got.content)) if is_html else None,
    )


def _same_text(old: Marks, new: Marks) -> str | None:
    """How the texts of two versions are the same, or None when they are not."""
    if not old.simhash or not new.simhash:
        return None
    bits = distance(old.simhash, new.simhash)
    return f"same text but for {bits} of 64 bits" if bits <= SAME_DISTANCE else None


def note_duplicate(assessed: Assessment, duplicates: Duplicates) -> Assessment:
    """Say so when this run has met the same, or nearly the same, document before."""
    if assessed.stage is not Stage.TEXT or assessed.marks is None:
        return assessed
    marks = assessed.marks
    twin = duplicates.check(assessed.listed.external_id, marks.content_hash or "", marks.simhash)
    return assessed if twin is None else replace(assessed, reason=_explain(twin))


def _explain(twin: DuplicateOf) -> str:
    kind = "duplicate" if twin.distance == 0 else "near-duplicate"
    return f"{kind} of {twin.external_id}"
