"""What became of a run, by its rows and its events: nothing lost, nothing done twice."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.runs.lifecycle import read_run
from penstock.runs.run import DocumentStatus, RunStatus
from penstock.store.database import Database, Tx
from penstock.store.schema import (
    ACTIVE_ITEM,
    embeddings,
    events,
    model_calls,
    nodes,
    run_documents,
    runs,
    work_items,
)

# Each of these is written in the very transaction in which the thing happens to a document.
_EFFECTS = {"TXT": "text read%", "LLM": "Extraction completed%", "EMB": "embedded by%"}


@dataclass(frozen=True, slots=True)
class Audit:
    """The figures that must all be zero, and those that tell how it came."""

    documents: int
    lost: int
    doubled: int
    wrong_counts: int
    finalized: int
    left_active: int
    rescued: int
    asked_again: int
    """Documents about which a model was asked more often than once."""

    @property
    def problems(self) -> list[str]:
        return list(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.lost:
            yield f"{self.lost} of {self.documents} documents are lost"
        if self.doubled:
            yield f"{self.doubled} effects happened twice"
        if self.wrong_counts:
            yield "the counts of the run are not exact"
        if self.finalized != 1:
            yield f"the run was finalized {self.finalized} times"
        if self.left_active:
            yield f"{self.left_active} items are left active"


def audit_run(database: Database, run_id: int, documents: int, *, failed: int = 0) -> Audit:
    """Look at a run of so many documents, of which so many are meant to fail."""
    with database.read() as tx:
        effects = _effects(tx, run_id)
        done = documents - failed
        whole = {document for document, stage in effects if stage == "EMB"}
        return Audit(
            documents=documents,
            lost=done - len(whole),
            doubled=sum(times - 1 for times in effects.values()) + _doubled_rows(tx, run_id),
            wrong_counts=_wrong_counts(tx, run_id, done, failed),
            finalized=_finalized(tx, run_id),
            left_active=_count(tx, sa.and_(work_items.c.run_id == run_id, ACTIVE_ITEM)),
            rescued=_taken_back(tx, run_id),
            asked_again=_asked_again(tx, run_id),
        )


def is_over(database: Database, run_id: int) -> bool:
    with database.read() as tx:
        return not read_run(tx, run_id).status.active


def _effects(tx: Tx, run_id: int) -> Counter[tuple[str, str]]:
    c = events.c
    told = sa.or_(*[sa.and_(c.stage == s, c.message.like(m)) for s, m in _EFFECTS.items()])
    query = sa.select(c.document, c.stage).where(c.run_id == run_id, told)
    return Counter((row.document, row.stage) for row in tx.execute(query))


def _doubled_rows(tx: Tx, run_id: int) -> int:
    """Completed items beyond one a document and stage, vectors beyond one a document."""
    c = work_items.c
    complete = sa.and_(c.run_id == run_id, c.status == "complete")
    items = tx.execute(
        sa.select(sa.func.count(), sa.func.count(sa.distinct(c.node_id)))
        .where(complete)
        .group_by(c.stage)
    )
    doubled = sum(row[0] - row[1] for row in items)
    numbers = sa.select(nodes.c.seq).join(run_documents, run_documents.c.node_id == nodes.c.id)
    own = embeddings.c.seq.in_(numbers.where(run_documents.c.run_id == run_id))
    vectors = sa.select(sa.func.count(), sa.func.count(sa.distinct(embeddings.c.seq))).where(own)
    found = tx.execute(vectors).one()
    return int(doubled + found[0] - found[1])


def _wrong_counts(tx: Tx, run_id: int, done: int, failed: int) -> int:
    run = tx.execute(sa.select(runs).where(runs.c.id == run_id)).one()
    wanted = dict.fromkeys(DocumentStatus, 0) | {
        DocumentStatus.READY: done,
        DocumentStatus.ERROR: failed,
    }
    said = {
        status: run.error_count if status is DocumentStatus.ERROR else getattr(run, status)
        for status in DocumentStatus
    }
    counted = (
        sa.select(run_documents.c.status, sa.func.count())
        .where(run_documents.c.run_id == run_id)
        .group_by(run_documents.c.status)
    )
    real = wanted.fromkeys(wanted, 0) | {
        DocumentStatus(row[0]): row[1] for row in tx.execute(counted)
    }
    finished = run.status == RunStatus.FINISHED and run.finished_at is not None
    return 0 if finished and said == wanted == real else 1


def _finalized(tx: Tx, run_id: int) -> int:
    c = events.c
    ended = sa.or_(*[c.message.like(f"{status}:%") for status in RunStatus if not status.active])
    query = sa.select(sa.func.count()).where(c.run_id == run_id, c.stage == "ING", ended)
    return int(tx.execute(query).scalar_one())


def _taken_back(tx: Tx, run_id: int) -> int:
    c = events.c
    back = c.message.like("taken back from a worker%")
    query = sa.select(sa.func.count()).where(c.run_id == run_id, back)
    return int(tx.execute(query).scalar_one())


def _asked_again(tx: Tx, run_id: int) -> int:
    c = model_calls.c
    often = (
        sa.select(c.node_id)
        .where(c.run_id == run_id)
        .group_by(c.node_id)
        .having(sa.func.count() > 1)
    )
    return int(tx.execute(sa.select(sa.func.count()).select_from(often.subquery())).scalar_one())


def _count(tx: Tx, which: sa.ColumnElement[bool]) -> int:
    query = sa.select(sa.func.count()).select_from(work_items).where(which)
    return int(tx.execute(query).scalar_one())
