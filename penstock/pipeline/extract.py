"""Stage `extract`: a model, or the rules, fills the fields of a profile from the text."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from penstock.documents import Extraction, ExtractionRequest, ExtractionSkipped, Stage
from penstock.faults import reach
from penstock.llm.profiles import profile_named, profile_names
from penstock.pipeline.batches import Line, compute, split_faults, update_nodes
from penstock.pipeline.choice import profile_of
from penstock.pipeline.closing import REFRESH, bury, carry_failure, close_ended
from penstock.pipeline.ledger import answer_row
from penstock.pipeline.steps import ExtractionResult
from penstock.pipeline.telling import tell, tell_failures
from penstock.store.database import Tx
from penstock.store.schema import extractions, nodes, texts
from penstock.work.items import Claim, Outcome, Verdict, WorkItem


@dataclass(frozen=True, slots=True)
class _Question:
    """One document's request, and the key under which its answer is kept for ever."""

    item: WorkItem
    request: ExtractionRequest
    key: str


def process_extract(line: Line, claim: Claim, *, go_on: bool, models: str) -> Claim:
    """Extract these documents; the claim on their embedding, or an empty one.

    `models` names the chain that answers, as part of the key. What the store already holds, and
    what stands in this batch twice, is not asked again.
    """
    items = line.begin(claim, claim.items)
    reach("extract.begun")
    with line.database.read() as tx:
        questions = _load_questions(tx, line, items, models)
        kept, own = _find_kept(tx, questions)
    asked = {question.key: question for question in questions if question.key not in kept}
    requests = [question.request for question in asked.values()]
    results = compute(line.steps.extract, [*asked], requests)
    reach("extract.answered")
    answers = kept | dict(zip(asked, results, strict=True))
    first = own | {question.item.id for question in asked.values()}
    return _Commit(line, claim, go_on).write(questions, answers, first)


@dataclass(frozen=True, slots=True)
class _Commit:
    """Writes the answers of one batch in one guarded transaction."""

    line: Line
    claim: Claim
    go_on: bool

    def write(
        self,
        questions: Sequence[_Question],
        answers: Mapping[str, ExtractionResult],
        first: Collection[int],
    ) -> Claim:
        items = [question.item for question in questions]
        good, bad = split_faults(items, [answers[question.key] for question in questions])
        by_item = {question.item.id: question for question in questions}
        skipped = [pair for pair in good if isinstance(pair[1], ExtractionSkipped)]
        found = [(item, answer) for item, answer in good if isinstance(answer, Extraction)]
        done = [pair for pair in found if pair[0].id in first]
        reused = [pair for pair in found if pair[0].id not in first]
        with self.line.database.write() as tx:
            ours = self._complete(tx, done, Outcome.DONE, by_item)
            ours += self._complete(tx, reused, Outcome.REUSED, by_item)
            ours += self._skip(tx, skipped, by_item)
            verdicts = self.line.queue.fail(tx, self.claim, bad)
            tell_failures(tx, verdicts)
            tell(tx, [(item, _story(item, answers[by_item[item.id].key])) for item in ours])
            going_on = close_ended(tx, [*ours, *_bury_and_carry(tx, verdicts)])
            following = self.line.queue.open_next(
                tx, self.claim, going_on, Stage.EMBED, leased=self.go_on
            )
        results: dict[int, Any] = {item.id: answer for item, answer in good}
        self.line.tell([(item, results[item.id]) for item in ours], verdicts)
        return following

    def _complete(
        self,
        tx: Tx,
        pairs: Sequence[tuple[WorkItem, Any]],
        outcome: Outcome,
        by_item: dict[int, _Question],
    ) -> list[WorkItem]:
        ours = self.line.queue.complete(tx, self.claim, [item for item, _ in pairs], outcome)
        results = {item.id: result for item, result in pairs}
        if ours:
            rows = [self._node_row(tx, by_item[item.id], results[item.id]) for item in ours]
            update_nodes(tx, rows)
        if ours and outcome is Outcome.DONE:
            self._keep(tx, [(by_item[item.id], results[item.id]) for item in ours])
        return ours

    def _skip(
        self, tx: Tx, pairs: Sequence[tuple[WorkItem, Any]], by_item: dict[int, _Question]
    ) -> list[WorkItem]:
        ours = self.line.queue.complete(
            tx, self.claim, [item for item, _ in pairs], Outcome.SKIPPED
        )
        reasons = {item.id: result.reason for item, result in pairs}
        for item in ours:
            values = {
                "profile": by_item[item.id].request.profile,
                "extraction_status": "skipped",
                "extraction_reason": reasons[item.id],
                "extraction_error": None,
                "extraction_version": self.line.extraction_version,
                "updated_at": tx.now,
            }
            tx.execute(sa.update(nodes).where(nodes.c.id == item.node_id).values(values))
        return ours

    def _keep(self, tx: Tx, answered: Sequence[tuple[_Question, Extraction]]) -> None:
        """What a model said is kept from the moment it said so; what rules found, from now."""
        insert = tx.insert(extractions).on_conflict_do_nothing()
        # In one order everywhere: two workers with the same keys must not wait for each other.
        ordered = sorted(answered, key=lambda pair: pair[0].key)
        version = self.line.extraction_version
        tx.execute(insert, [answer_row(tx, q.request, answer, version) for q, answer in ordered])

    def _node_row(self, tx: Tx, question: _Question, answer: Extraction) -> dict[str, Any]:
        return {
            "b_id": question.item.node_id,
            "b_profile": question.request.profile,
            "b_fields": dict(answer.fields),
            "b_extraction_status": "ready",
            "b_extraction_reason": ", ".join(answer.marks) or None,
            "b_extraction_error": None,
            "b_extraction_model": answer.model,
            "b_extraction_confidence": answer.confidence,
            "b_extraction_version": self.line.extraction_version,
            "b_extracted_at": tx.now,
            "b_updated_at": tx.now,
        }


def _story(item: WorkItem, answer: ExtractionResult) -> str:
    if not isinstance(answer, Extraction):
        return f"Extraction skipped: {getattr(answer, 'reason', '')}"
    fell_back = f", fell back because of {answer.fallback_reason}" if answer.fallback_reason else ""
    return (
        f"Extraction completed: node {item.node_id}, model {answer.model}, "
        f"confidence {answer.confidence:.2f}{fell_back}"
    )


def _bury_and_carry(tx: Tx, verdicts: Sequence[Verdict]) -> list[WorkItem]:
    """Dead extractions are embedded all the same; the document ends as an error."""
    dead = [verdict for verdict in verdicts if verdict.dead]
    bury(tx, dead)
    return [carry_failure(verdict) for verdict in dead]


def _load_questions(tx: Tx, line: Line, items: Sequence[WorkItem], models: str) -> list[_Question]:
    query = (
        sa.select(
            nodes.c.id,
            nodes.c.profile,
            nodes.c.metadata,
            nodes.c.media_type,
            texts.c.title,
            texts.c.body,
        )
        .outerjoin(texts, texts.c.seq == nodes.c.seq)
        .where(nodes.c.id.in_([item.node_id for item in items]))
    )
    rows = {row.id: row for row in tx.execute(query)}
    return [_question(line, item, rows[item.node_id], models) for item in items]


def _question(line: Line, item: WorkItem, row: sa.Row[Any], models: str) -> _Question:
    profile = item.payload.get("profile") or profile_of(row, line.default_profile)
    request = ExtractionRequest(row.body or "", profile, row.title or None, row.metadata)
    key = _key(line, item.tenant_id, request, models)
    if item.payload.get(REFRESH):
        # Under a key of its own: what the store already holds is not asked for.
        key = hashlib.sha256(f"{key}:{item.id}".encode()).hexdigest()
    known = replace(
        request, key=key, tenant_id=item.tenant_id, node_id=item.node_id, run_id=item.run_id
    )
    return _Question(item, known, key)


def _key(line: Line, tenant_id: str, request: ExtractionRequest, models: str) -> str:
    parts = [
        tenant_id,
        line.extraction_version,
        _schema_hash(request.profile),
        models,
        request.title,
        dict(request.metadata),
        request.text,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _schema_hash(profile: str) -> str:
    # A profile that is no longer known is the extractor's to refuse, document by document.
    return profile_named(profile).schema_hash if profile in profile_names() else "unknown"


def _find_kept(tx: Tx, questions: Sequence[_Question]) -> tuple[dict[str, Extraction], set[int]]:
    """Answers that the store already holds for exactly these questions, by key; and the items
    whose own answer it is, from an attempt of the same run that did not get to its commit."""
    c = extractions.c
    query = sa.select(extractions).where(
        c.tenant_id.in_({q.item.tenant_id for q in questions}),
        c.cache_key.in_([q.key for q in questions]),
    )
    rows = {row.cache_key: row for row in tx.execute(query)}
    own = {q.item.id for q in questions if q.key in rows and _is_own(q.item, rows[q.key])}
    return {key: _kept_answer(row) for key, row in rows.items()}, own


def _is_own(item: WorkItem, row: sa.Row[Any]) -> bool:
    same_run = item.run_id is not None and item.run_id == row.run_id
    return same_run and bool(item.node_id == row.node_id)


def _kept_answer(row: sa.Row[Any]) -> Extraction:
    return Extraction(
        row.fields,
        row.confidence,
        row.model,
        fallback_reason=row.fallback_reason,
        marks=tuple(row.marks or ()),
    )
