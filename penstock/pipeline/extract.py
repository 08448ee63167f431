"""Stage `extract`: a model, or the rules, fills the fields of a profile from the text."""

import hashlib
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from penstock.documents import (
    Extraction,
    ExtractionRequest,
    ExtractionSkipped,
    FieldEvidence,
    ModelCall,
    Stage,
    hash_text,
)
from penstock.errors import BudgetSpent
from penstock.failpoints import hit
from penstock.llm.answers import Caps, cap_fields
from penstock.llm.caller import CallNotNeeded
from penstock.llm.evidence import weigh_answer
from penstock.llm.profiles import profile_named, profile_names
from penstock.llm.prompts import PreparedRequest, prepare_request
from penstock.pipeline.keys import fields_key
from penstock.pipeline.profile_choice import CHOICE_COLUMNS, choose_profile
from penstock.pipeline.stage import (
    Completion,
    StageContext,
    compute,
    split_faults,
    update_nodes,
)
from penstock.pipeline.steps import ExtractionResult
from penstock.queue.items import Claim, Outcome, WorkItem
from penstock.review.corrections import (
    MOST_VALUE,
    Correction,
    apply_corrections,
    find_outdated,
    lock_nodes,
    outdated_reasons,
    read_corrections,
    review_columns,
)
from penstock.rules.vocabulary import spellings_of
from penstock.runs.up_to_date import hold_nodes
from penstock.store.bulk import BulkStatement
from penstock.store.database import Database, Tx
from penstock.store.schema import ACTIVE_RUN, extractions, model_calls, nodes, runs, sources, texts

# How often a run's status and cost, which other workers change too, are read again.
LOOK_SECONDS = 1.0
# Of calls for texts that are no nodes.
NO_NODE = str(UUID(int=0))


def process_extract(
    context: StageContext, claim: Claim, stages: Collection[Stage], models: str
) -> list[WorkItem]:
    """Extract these documents; the leased items of their embedding, if it is among `stages`.

    `models` names the chain that answers, as part of the key. A request that the store holds an
    answer for, or that occurs twice in the batch, is not sent again.
    """
    items = context.begin(claim, claim.items)
    hit("extract.begun")
    with context.database.read() as tx:
        requests = _load_requests(tx, context, [_of_item(item) for item in items], models)
        kept, own = _find_kept(tx, requests)
    asked = _without_answer(requests, kept)
    answers = _answer(context, requests, kept)
    hit("extract.answered")
    own |= {request.node_id for request in asked.values()}
    good: list[tuple[WorkItem, Extraction | ExtractionSkipped]]
    good, bad = split_faults(items, [answers[request.key] for request in requests])
    completed = [_completion(context, item, answer, item.node_id in own) for item, answer in good]
    by_node = {request.node_id: request for request in requests}

    def write(tx: Tx, done: Sequence[Completion]) -> None:
        _write_nodes(tx, context, [(by_node[one.item.node_id], one.result) for one in done])
        fresh = [one.item.node_id for one in done if one.outcome is Outcome.DONE]
        _keep_answers(tx, context, [by_node[node_id] for node_id in fresh], answers)

    return context.commit(claim, completed, bad, write, stages)


@dataclass(frozen=True, slots=True)
class WantedNode:
    """A node whose fields are wanted."""

    tenant_id: str
    node_id: str
    profile: str | None = None
    """The profile that its run names."""
    run_id: int | None = None
    anew: int | None = None
    """The item that takes no kept answer."""


def _of_item(item: WorkItem) -> WantedNode:
    payload = item.payload
    anew = item.id if payload.refresh else None
    return WantedNode(item.tenant_id, item.node_id, payload.profile, item.run_id, anew)


def answer_ahead(
    context: StageContext, wanted: Sequence[WantedNode], models: str
) -> list[tuple[ExtractionRequest, ExtractionResult]]:
    """What these nodes would get if they were extracted now. The nodes stay as they are; when they
    are extracted with the same configuration, they get the answers that are kept from here."""
    with context.database.read() as tx:
        requests = _load_requests(tx, context, wanted, models)
        kept, _ = _find_kept(tx, requests)
    answers = _answer(context, requests, kept)
    asked = _without_answer(requests, kept).values()
    fresh = [one for one in asked if isinstance(answers[one.key], Extraction)]
    with context.database.write() as tx:
        _keep_answers(tx, context, fresh, answers)
    return [(one, _shown(answers[one.key], context.caps)) for one in requests]


def _shown(answer: ExtractionResult, caps: Caps) -> ExtractionResult:
    return _cap(answer, caps) if isinstance(answer, Extraction) else answer


def _without_answer(
    requests: Sequence[ExtractionRequest], kept: Container[str]
) -> dict[str, ExtractionRequest]:
    """By key, so that two that are the same are asked once."""
    return {request.key: request for request in requests if request.key not in kept}


def _answer(
    context: StageContext,
    requests: Sequence[ExtractionRequest],
    kept: Mapping[str, ExtractionResult],
) -> dict[str, ExtractionResult]:
    """The answer to each request, by its key: those that are kept, and new ones to the others."""
    asked = _without_answer(requests, kept)
    reused = sum(request.key in kept for request in requests)
    step = partial(context.steps.extract, reused=reused)
    # Also when all is reused: the step is to be seen in Prefect.
    results = compute(step, [*asked], [*asked.values()]) if asked else step([], [])
    return {**kept, **dict(zip(asked, results, strict=True))}


def _completion(
    context: StageContext, item: WorkItem, answer: Extraction | ExtractionSkipped, own: bool
) -> Completion:
    if isinstance(answer, ExtractionSkipped):
        message = f"Extraction skipped: {answer.reason}"
        return Completion(item, Outcome.SKIPPED, message, answer)
    fell_back = f", fell back because of {answer.fallback_reason}" if answer.fallback_reason else ""
    message = (
        f"Extraction completed: node {item.node_id}, model {answer.model}, "
        f"confidence {answer.confidence:.2f}{fell_back}"
    )
    return Completion(
        item, Outcome.DONE if own else Outcome.REUSED, message, _cap(answer, context.caps)
    )


def _cap(answer: Extraction, caps: Caps) -> Extraction:
    """The answer as a node shows it: stored answers are not cut."""
    fields = cap_fields(answer.fields, caps)
    evidence = {
        name: one.first(len(fields[name])) if isinstance(fields[name], list) else one
        for name, one in answer.evidence.items()
    }
    return replace(answer, fields=fields, evidence=evidence)


def _write_nodes(
    tx: Tx, context: StageContext, found: Sequence[tuple[ExtractionRequest, Any]]
) -> None:
    """What was extracted, with the corrections that people made until now, also meanwhile."""
    node_ids = [request.node_id for request, _ in found]
    lock_nodes(tx, node_ids)
    made = read_corrections(tx, node_ids)
    extracted: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for request, answer in found:
        corrected = _correct(request, answer, made[request.node_id], context.threshold)
        row = {
            "id": request.node_id,
            "profile": request.profile,
            "profile_basis": request.profile_basis,
            "profile_reason": request.profile_reason,
            "extraction_error": None,
            "extraction_version": context.extraction_version,
            "extraction_profile_hash": _profile_hash(request.profile),
            "updated_at": tx.now,
            **corrected,
        }
        if isinstance(answer, ExtractionSkipped):
            reason = {"extraction_status": "skipped", "extraction_reason": answer.reason}
            skipped.append(row | reason)
            continue
        values = {
            "extraction_status": "ready",
            "extraction_reason": ", ".join(answer.marks) or None,
            "extraction_model": answer.model,
            "extracted_at": tx.now,
        }
        extracted.append(row | values)
    update_nodes(tx, extracted)
    update_nodes(tx, skipped)


def _correct(
    request: ExtractionRequest,
    answer: Extraction | ExtractionSkipped,
    made: Sequence[Correction],
    threshold: float,
) -> dict[str, Any]:
    """The columns that corrections may change."""
    text_hash = hash_text(request.text) if made else ""
    if isinstance(answer, Extraction):
        profile = profile_named(request.profile)
        return apply_corrections(profile, text_hash, answer, made).columns(threshold)
    outdated = find_outdated(made, profile_named(request.profile), text_hash) if made else ()
    return review_columns(outdated_reasons(outdated), MOST_VALUE)


def _evidence_json(answer: Extraction) -> dict[str, Any]:
    return {name: one.to_json() for name, one in answer.evidence.items()}


def _keep_answers(
    tx: Tx,
    context: StageContext,
    requests: Sequence[ExtractionRequest],
    answers: Mapping[str, Any],
) -> None:
    """A model's answers were kept when they came; those of the rules are kept now."""
    if requests:
        # In one order everywhere: two workers with the same keys must not wait for each other.
        ordered = sorted(requests, key=lambda request: request.key)
        version = context.extraction_version
        rows = [_answer_row(tx, request, answers[request.key], version) for request in ordered]
        _KEPT_ANSWERS.execute(tx, rows)


_KEPT_ANSWERS = BulkStatement(lambda tx: tx.insert(extractions).on_conflict_do_nothing())


def _answer_row(
    tx: Tx, request: ExtractionRequest, answer: Extraction, version: str
) -> dict[str, Any]:
    """An answer as it is kept for later requests of the same key."""
    return {
        "tenant_id": request.tenant_id,
        "node_id": request.node_id,
        "run_id": request.run_id,
        "cache_key": request.key,
        "profile": request.profile,
        "profile_hash": _profile_hash(request.profile),
        "version": version,
        "model": answer.model,
        "confidence": answer.confidence,
        "fallback_reason": answer.fallback_reason,
        "marks": list(answer.marks),
        "fields": dict(answer.fields),
        "evidence": _evidence_json(answer),
        "extracted_at": tx.now,
    }


def _load_requests(
    tx: Tx, context: StageContext, wanted: Sequence[WantedNode], models: str
) -> list[ExtractionRequest]:
    c = nodes.c
    query = (
        sa.select(c.id, *CHOICE_COLUMNS)
        .outerjoin(texts, texts.c.seq == c.seq)
        .outerjoin(sources, sources.c.id == c.source_id)
        .where(c.id.in_([one.node_id for one in wanted]))
    )
    rows = {row.id: row for row in tx.execute(query)}
    return [_request(context, one, rows[one.node_id], models) for one in wanted]


def _request(
    context: StageContext, wanted: WantedNode, row: sa.Row[Any], models: str
) -> ExtractionRequest:
    choice = choose_profile(wanted.profile, row, context.default_profile)
    title, text = row.title or None, row.body or ""
    made_by = (context.extraction_version, choice.profile, models)
    key = fields_key(wanted.tenant_id, *made_by, title, row.metadata, text)
    if wanted.anew is not None:
        # Under a key of its own, so that no kept answer is found.
        key = hashlib.sha256(f"{key}:{wanted.anew}".encode()).hexdigest()
    return ExtractionRequest(
        text,
        choice.profile,
        title,
        row.metadata,
        key,
        wanted.tenant_id,
        wanted.node_id,
        wanted.run_id,
        choice.basis,
        choice.reason,
    )


def _profile_hash(profile: str) -> str | None:
    """None for a profile that is not known any more: the extractor refuses its documents."""
    return profile_named(profile).schema_hash if profile in profile_names() else None


def _find_kept(
    tx: Tx, requests: Sequence[ExtractionRequest]
) -> tuple[dict[str, ExtractionResult], set[str]]:
    """Answers that the store holds for exactly these requests, by key; and the nodes whose own
    answer it is, from an attempt of the same run that did not get to its commit."""
    c = extractions.c
    query = sa.select(extractions).where(
        c.tenant_id.in_({request.tenant_id for request in requests}),
        c.cache_key.in_([request.key for request in requests]),
    )
    rows = {row.cache_key: row for row in tx.execute(query)}
    asked_for = {(row.cache_key, row.node_id, row.run_id) for row in rows.values()}
    own = {
        request.node_id
        for request in requests
        if request.run_id is not None
        and (request.key, request.node_id, request.run_id) in asked_for
    }
    by_key = {request.key: request for request in requests}
    return {key: _kept_answer(row, by_key[key]) for key, row in rows.items()}, own


def _kept_answer(row: sa.Row[Any], request: ExtractionRequest) -> Extraction:
    stored = row.evidence or {}
    kept = Extraction(
        row.fields,
        row.confidence,
        row.model,
        fallback_reason=row.fallback_reason,
        marks=tuple(row.marks or ()),
        evidence={name: FieldEvidence.from_json(one) for name, one in stored.items()},
    )
    prepared = prepare_request(request, len(request.text))
    if row.evidence is not None or not isinstance(prepared, PreparedRequest):
        return kept
    # Kept by an earlier version: what supports it can still be looked up.
    found = weigh_answer(prepared, row.fields, row.model, row.confidence, spellings=spellings_of)
    return replace(kept, confidence=found.confidence, evidence=found.evidence)


@dataclass(slots=True)
class _RunState:
    """The cost and status of a run when they were last read."""

    dollars: float
    active: bool
    read_at: float


class StoreLedger:
    """A ledger (see `penstock.llm.chain`) in the store; safe from several threads.

    An answer to a text that is no node, or none any more, is not kept: nothing would ever delete
    it.
    """

    def __init__(
        self, database: Database, extraction_version: str, max_cost_usd_per_run: float | None
    ) -> None:
        self._database = database
        self._version = extraction_version
        self._max_dollars = max_cost_usd_per_run
        self._lock = threading.Lock()
        self._runs: dict[int, _RunState] = {}
        self._under_way: defaultdict[int, float] = defaultdict(float)

    @contextmanager
    def spending(self, request: ExtractionRequest, about_usd: float) -> Iterator[None]:
        run_id = request.run_id
        if run_id is None:
            yield
            return
        run = self._read_run(run_id)
        if not run.active:
            raise CallNotNeeded(f"run {run_id} has ended: no model is asked for it any more")
        with self._lock:
            under_way = self._under_way[run_id]
            if self._max_dollars is not None and run.dollars + under_way >= self._max_dollars:
                raise _budget_spent(run_id, run.dollars, self._max_dollars)
            self._under_way[run_id] += about_usd
        try:
            yield
        finally:
            with self._lock:
                self._under_way[run_id] -= about_usd

    def record(
        self, request: ExtractionRequest, call: ModelCall, answer: Extraction | None = None
    ) -> None:
        with self._database.write() as tx:
            row = {
                "tenant_id": request.tenant_id,
                "run_id": request.run_id,
                "node_id": request.node_id or NO_NODE,
                "called_at": tx.now,
            }
            values = {one.name: getattr(call, one.name) for one in fields(call)}
            tx.execute(sa.insert(model_calls), row | values)
            if answer is not None and request.node_id:
                self._keep(tx, request, answer)
        if request.run_id is not None:
            with self._lock:
                if request.run_id in self._runs:
                    self._runs[request.run_id].dollars += call.cost_usd

    def keep(self, request: ExtractionRequest, answer: Extraction) -> None:
        if not request.node_id:
            return
        with self._database.write() as tx:
            self._keep(tx, request, answer)

    def _keep(self, tx: Tx, request: ExtractionRequest, answer: Extraction) -> None:
        if not hold_nodes(tx, [request.node_id]):
            return
        row = _answer_row(tx, request, answer, self._version)
        tx.execute(tx.insert(extractions).on_conflict_do_nothing(), row)

    def _read_run(self, run_id: int) -> _RunState:
        with self._lock:
            known = self._runs.get(run_id)
            if known is not None and time.monotonic() - known.read_at < LOOK_SECONDS:
                return known
        active = sa.select(runs.c.id).where(runs.c.id == run_id, ACTIVE_RUN)
        cost = sa.func.coalesce(sa.func.sum(model_calls.c.cost_usd), 0.0)
        spent = sa.select(cost).where(model_calls.c.run_id == run_id)
        with self._database.read() as tx:
            dollars = 0.0 if self._max_dollars is None else float(tx.execute(spent).scalar_one())
            run = _RunState(dollars, tx.execute(active).first() is not None, time.monotonic())
        with self._lock:
            self._runs[run_id] = run
        return run


def _budget_spent(run_id: int, dollars: float, most: float) -> BudgetSpent:
    return BudgetSpent(
        Stage.EXTRACT,
        f"run {run_id} has cost ${dollars:.6g}, and with the calls under way all of the "
        f"${most:g} it may: raise PENSTOCK_MAX_COST_USD_PER_RUN, then `penstock resume {run_id}` "
        "goes on where it stopped",
        run_id,
    )
