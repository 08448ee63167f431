"""What the three stages share: start, compute outside any transaction, commit under the lease."""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from penstock.documents import ExtractedText, Extraction, ExtractionSkipped, Fault, Stage
from penstock.errors import ConfigurationError, ErrorClass, Interrupted, StoreError
from penstock.events import Event, EventStage, Level, record
from penstock.llm.answers import Caps
from penstock.pipeline.steps import Steps, StoredPayloads
from penstock.queue.items import Claim, Outcome, StageFailure, StageOrder, Verdict, WorkItem
from penstock.queue.queue import WorkQueue
from penstock.runs.run import DocumentStatus
from penstock.store.bulk import BulkStatement
from penstock.store.database import Database, Tx
from penstock.store.schema import nodes, run_documents, workers

log = logging.getLogger(__name__)
Input = TypeVar("Input")
Computed = TypeVar("Computed")
Result = ExtractedText | Extraction | ExtractionSkipped | None
"""What a stage found; None for vectors, which only search reads."""

MARKS = ("content_hash", "simhash", "etag", "last_modified")
_EVENT_STAGE: dict[Stage, EventStage] = {
    Stage.TEXT: "TXT",
    Stage.EXTRACT: "LLM",
    Stage.EMBED: "EMB",
}


class Observer(Protocol):
    """Called with what has been committed."""

    def started(self, items: Sequence[WorkItem]) -> None: ...

    def completed(self, item: WorkItem, result: Result) -> None: ...

    def failed(self, verdict: Verdict) -> None:
        """This attempt failed; `verdict.dead` says whether it was the last."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A processed item, the message of its event, and its result for the observer."""

    item: WorkItem
    outcome: Outcome
    message: str
    result: Result = None


def _write_nothing(tx: Tx, completed: Sequence[Completion]) -> None:
    del tx, completed


@dataclass(frozen=True, slots=True)
class StageContext:
    """What every stage works with."""

    database: Database
    queue: WorkQueue
    steps: Steps
    extraction_version: str
    default_profile: str | None
    """Of documents that name none; None: each has the one that its content shows."""
    extractors: str
    """Fingerprint of the users' own text extractors: with other ones, a text may differ."""
    payloads: StoredPayloads
    caps: Caps
    """Limits of the lists in a node's fields; stored answers are not cut."""
    threshold: float
    """Records that are less sure need review."""
    passage_chars: int
    """The longest passage."""
    observer: Observer | None = None

    def begin(self, claim: Claim, items: Sequence[WorkItem]) -> list[WorkItem]:
        """Start work on these; items that another worker has taken over are left out."""
        ours = [*items]
        if not all(item.id in claim.started for item in items):
            with self.database.write() as tx:
                ours = self.queue.start(tx, claim, items)
        if self.observer is not None:
            self.observer.started(ours)
        return ours

    def commit(
        self,
        claim: Claim,
        completed: Sequence[Completion],
        failed: Sequence[tuple[WorkItem, Fault]],
        write: Callable[[Tx, Sequence[Completion]], None] = _write_nothing,
        stages: Collection[Stage] = (),
    ) -> list[WorkItem]:
        """Commit the results of a batch and open what follows, in one transaction.

        `write` stores the results of the items that are still ours. The next stage is opened under
        the same lease if it is among `stages`, else left pending; what was leased is returned.
        """
        with self.database.write() as tx:
            # All items before any node, as everywhere, so that no two writers wait for each other.
            ours = self._complete(tx, claim, completed)
            verdicts = self.queue.fail(tx, claim, failed)
            if ours:
                write(tx, ours)
            record_failures(tx, verdicts)
            record_items(tx, [(one.item, one.message) for one in ours])
            done = [one.item for one in ours] + close_dead(tx, verdicts)
            following = open_next_stages(tx, self.queue, claim, done, stages)
            if ours:
                # In this transaction: if only the answer to the commit is lost, it still counts.
                mine = sa.update(workers).where(workers.c.id == claim.owner)
                tx.execute(mine.values(completed=workers.c.completed + len(ours)))
        self._notify(ours, verdicts)
        return following

    def _complete(self, tx: Tx, claim: Claim, completed: Sequence[Completion]) -> list[Completion]:
        by_id = {one.item.id: one for one in completed}
        ours: list[WorkItem] = []
        for outcome in Outcome:
            items = [one.item for one in completed if one.outcome is outcome]
            ours += self.queue.complete(tx, claim, items, outcome)
        return [by_id[item.id] for item in ours]

    def _notify(self, completed: Sequence[Completion], verdicts: Sequence[Verdict]) -> None:
        if self.observer is not None:
            for one in completed:
                self.observer.completed(one.item, one.result)
            for verdict in verdicts:
                self.observer.failed(verdict)


def open_next_stages(
    tx: Tx,
    queue: WorkQueue,
    claim: Claim,
    items: Sequence[WorkItem],
    stages: Collection[Stage] = (),
) -> list[WorkItem]:
    """Close the documents whose last stage this was, and open the next stages of the others. Those
    among `stages` are leased by the claim and returned."""
    close_documents(tx, [item for item in items if not _next_stages(item)])
    groups: defaultdict[tuple[int, Stage], list[WorkItem]] = defaultdict(list)
    for item in items:
        for position, stage in enumerate(_next_stages(item)):
            groups[position, stage].append(item)
    leased: list[WorkItem] = []
    # This worker goes on with the first of the stages; a parallel one is left pending.
    for (position, stage), group in sorted(groups.items()):
        goes_on = position == 0 and stage in stages
        leased += queue.open_next(tx, claim, group, stage, leased=goes_on).items
    return leased


def _next_stages(item: WorkItem) -> tuple[Stage, ...]:
    if item.stage in (item.payload.last_stage, Stage.EMBED):
        return ()
    if item.stage is Stage.TEXT:
        return (item.payload.order or StageOrder.EXTRACT_FIRST).stages
    return (Stage.EMBED,)


def compute(
    step: Callable[[Sequence[str], Sequence[Input]], list[Computed]],
    keys: Sequence[str],
    inputs: Sequence[Input],
) -> list[Computed | Fault]:
    """Run a step over a batch; if it raises, run it once more for each document alone.

    So a document that breaks a step costs itself an attempt and the others nothing. Configuration
    and store errors, and a stop, are not caused by a document and are raised.
    """
    if not inputs:
        return []
    try:
        return [*step(keys, inputs)]
    except (ConfigurationError, StoreError, Interrupted):
        raise
    except Exception as error:
        # Parsers and model clients may raise anything.
        if len(inputs) == 1:
            log.exception("a step failed for %s", keys[0])
            return [Fault(ErrorClass.UNKNOWN, f"{type(error).__name__}: {error}")]
        return [compute(step, [key], [one])[0] for key, one in zip(keys, inputs, strict=True)]


def split_faults(
    items: Sequence[WorkItem], results: Sequence[Computed | Fault]
) -> tuple[list[tuple[WorkItem, Computed]], list[tuple[WorkItem, Fault]]]:
    """Results and faults apart, each beside its item."""
    good: list[tuple[WorkItem, Computed]] = []
    bad: list[tuple[WorkItem, Fault]] = []
    for item, result in zip(items, results, strict=True):
        if isinstance(result, Fault):
            bad.append((item, result))
        else:
            good.append((item, result))
    return good, bad


def update_nodes(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """Write many nodes in one statement; a row is the node's `id` and the columns to set."""
    if rows:
        names = tuple(rows[0])
        keys = [f"b_{name}" for name in names]
        bound = [dict(zip(keys, row.values(), strict=True)) for row in rows]
        _NODE_UPDATE.execute(tx, bound, names)


def _build_node_update(tx: Tx, names: tuple[str, ...]) -> sa.Update:
    del tx
    update = sa.update(nodes).where(nodes.c.id == sa.bindparam("b_id"))
    return update.values({name: sa.bindparam(f"b_{name}") for name in names if name != "id"})


_NODE_UPDATE = BulkStatement(_build_node_update)


def record_items(tx: Tx, messages: Iterable[tuple[WorkItem, str]]) -> None:
    """Record an event for each of these items."""
    record(tx, *[_event(item, message) for item, message in messages])


def record_failures(tx: Tx, verdicts: Sequence[Verdict]) -> None:
    """Record what went wrong with these, and whether they are retried."""
    record(tx, *[_failure_event(verdict) for verdict in verdicts])


def _failure_event(verdict: Verdict) -> Event:
    message = f"{verdict.fault.kind}: {_message_of(verdict)}"
    if verdict.dead:
        return _event(verdict.item, message, level="ERROR")
    return _event(verdict.item, f"{message} (it is tried again)", level="WARNING")


def _message_of(verdict: Verdict) -> str:
    """What went wrong, without the document's name, which is shown beside it."""
    return verdict.fault.message.removeprefix(f"{verdict.item.document}: ")


def _event(item: WorkItem, message: str, *, level: Level = "INFO") -> Event:
    return Event(
        item.tenant_id,
        _EVENT_STAGE[item.stage],
        message,
        level=level,
        run_id=item.run_id,
        node_id=item.node_id,
        source=item.payload.source,
        document=item.document,
    )


def close_dead(tx: Tx, verdicts: Sequence[Verdict]) -> list[WorkItem]:
    """Write the failure of dead items to their nodes, whose old fields and marks stay, and to their
    documents in the run. Those whose extraction is dead are embedded all the same: returned, to be
    closed as errors after that."""
    dead = [verdict for verdict in verdicts if verdict.dead]
    for verdict in dead:
        values: dict[str, Any] = {"updated_at": tx.now}
        for what in _failed_parts(verdict.item):
            values |= {f"{what}_status": "failed", f"{what}_error": verdict.fault.message}
        tx.execute(sa.update(nodes).where(nodes.c.id == verdict.item.node_id).values(values))
    close_failed(tx, [one for one in dead if one.item.stage is not Stage.EXTRACT])
    return [
        replace(one.item, payload=replace(one.item.payload, failed=_failure_of(one)))
        for one in dead
        if one.item.stage is Stage.EXTRACT
    ]


def _failed_parts(item: WorkItem) -> tuple[str, ...]:
    """What a node lacks when this item is dead. For a text of a run it is shown at the extraction;
    a node from the API waits for whatever its order has after the text."""
    if item.stage is Stage.EMBED:
        return ("embedding",)
    if item.stage is Stage.EXTRACT or item.payload.order is None:
        return ("extraction",)
    if item.payload.order is StageOrder.EMBED_ONLY:
        return ("embedding",)
    return ("extraction", "embedding")


def _failure_of(verdict: Verdict) -> StageFailure:
    return StageFailure(verdict.fault.kind, _message_of(verdict))


def close_documents(tx: Tx, items: Sequence[WorkItem]) -> None:
    """All stages of these are done: commit their marks, unless an earlier stage failed."""
    _commit_marks(tx, [item for item in items if item.payload.failed is None])
    _update_run_documents(tx, [(item, item.payload.failed) for item in items])


def close_failed(tx: Tx, verdicts: Sequence[Verdict]) -> None:
    """Nothing follows these: their documents in the run are errors."""
    _update_run_documents(tx, [(verdict.item, _failure_of(verdict)) for verdict in verdicts])


def _commit_marks(tx: Tx, items: Sequence[WorkItem]) -> None:
    """Only where they belong to the bytes that the node's text was made from: an old dead letter
    may be replayed when newer bytes have long been read."""
    rows = [
        {"b_id": item.node_id, "b_raw_key": item.payload.raw_key}
        | {f"b_{mark}": getattr(item.payload, mark) for mark in MARKS}
        for item in items
        if item.payload.content_hash is not None
    ]
    _MARKS_UPDATE.execute(tx, rows)


def _build_marks_update(tx: Tx) -> sa.Update:
    del tx
    same_bytes = nodes.c.raw_key == sa.bindparam("b_raw_key")
    marked = sa.update(nodes).where(nodes.c.id == sa.bindparam("b_id"), same_bytes)
    return marked.values({mark: sa.bindparam(f"b_{mark}") for mark in MARKS})


_MARKS_UPDATE = BulkStatement(_build_marks_update)


def _update_run_documents(tx: Tx, closed: Sequence[tuple[WorkItem, StageFailure | None]]) -> None:
    rows = [
        {
            "b_run": item.run_id,
            "b_external": item.payload.external_id,
            "b_status": DocumentStatus.ERROR if failure else DocumentStatus.READY,
            "b_class": failure.error_class if failure else None,
            "b_reason": failure.message if failure else None,
            "b_now": tx.now,
            "b_node": None if failure else item.node_id,
        }
        for item, failure in closed
        if item.run_id is not None
    ]
    _RUN_DOCUMENT_UPDATE.execute(tx, rows)


def _build_run_document_update(tx: Tx) -> sa.Update:
    del tx
    c = run_documents.c
    doubtful = sa.exists().where(nodes.c.id == sa.bindparam("b_node"), nodes.c.needs_review)
    return (
        sa.update(run_documents)
        .where(c.run_id == sa.bindparam("b_run"), c.external_id == sa.bindparam("b_external"))
        # Not `=`: before the first ANALYZE of a store, Postgres would look for the document among
        # all that are pending, by the index of these.
        .where(c.status.is_not_distinct_from(DocumentStatus.PENDING))
        .values(
            status=sa.bindparam("b_status"),
            error_class=sa.bindparam("b_class"),
            # A note made on the way in ("duplicate of …") stays unless an error replaces it.
            reason=sa.func.coalesce(sa.bindparam("b_reason", type_=c.reason.type), c.reason),
            needs_review=doubtful,
            updated_at=sa.bindparam("b_now"),
        )
    )


_RUN_DOCUMENT_UPDATE = BulkStatement(_build_run_document_update)
