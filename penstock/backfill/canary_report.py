"""What a canary has found: which fields would change, whether for the better, and at what price."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

import sqlalchemy as sa

from penstock.backfill.backfill import Backfill
from penstock.evaluation.comparison import values_of
from penstock.evaluation.evaluation import Changes, Evaluation, Setup, compare_evaluations
from penstock.evaluation.gold import GoldRecord
from penstock.evaluation.scoring import DocumentScore, score_fields
from penstock.store.database import Tx
from penstock.store.schema import canary_documents, model_calls, nodes

READY = "ready"
MOST_SHOWN = 20
_KINDS = ("same", "changed", "added", "removed")
FIELD_COLUMNS = ("field", *_KINDS)
_c = canary_documents.c


@dataclass(frozen=True, slots=True)
class FieldChanges:
    """In how many documents a field stays, changes, is found only now, or is not found any more."""

    same: int = 0
    changed: int = 0
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class ChangedDocument:
    """A document whose fields would change."""

    node_id: str
    title: str | None
    fields: Mapping[str, tuple[Any, Any]]
    """Each field that changes, as it was and as it would be."""


@dataclass(frozen=True, slots=True)
class CanaryReport:
    """What a canary has found."""

    canary: Backfill
    done: int
    total: int
    failed: int
    skipped: int
    confidence: tuple[float | None, float | None]
    """The mean, as it was and as it would be."""
    fields: Mapping[str, Mapping[str, FieldChanges]]
    """By profile, then by field."""
    changed: tuple[ChangedDocument, ...]
    spent_usd: float
    all_usd: float | None
    """What all documents would cost; None: unknown."""
    scores: tuple[Evaluation, Evaluation] | None
    """Of the documents that are labelled, as they were and as they would be."""

    @property
    def is_complete(self) -> bool:
        return self.done == self.total

    @property
    def changes(self) -> Changes | None:
        """Which labelled documents would get better, and which worse."""
        return None if self.scores is None else compare_evaluations(*self.scores)

    def as_json(self) -> dict[str, Any]:
        figures = self.figures()
        changed = [asdict(one) for one in self.changed[:MOST_SHOWN]]
        return {**self.canary.as_json(), **figures, "examples": changed, "scores": self._scores()}

    def figures(self) -> dict[str, Any]:
        """Without anything from the documents."""
        facts = self.canary.canary or {}
        by_profile = {
            profile: {name: asdict(one) for name, one in fields.items()}
            for profile, fields in self.fields.items()
        }
        return {
            "done": self.done,
            "failed": self.failed,
            "skipped": self.skipped,
            "changed": len(self.changed),
            "confidence": {"before": self.confidence[0], "after": self.confidence[1]},
            "fields": by_profile,
            "spent_usd": round(self.spent_usd, 6),
            "all_usd": None if self.all_usd is None else round(self.all_usd, 6),
            "all_documents": facts.get("extractions"),
        }

    def _scores(self) -> dict[str, Any] | None:
        if self.scores is None or self.changes is None:
            return None
        before, after = (one.as_json(documents=False) for one in self.scores)
        return {"before": before, "after": after, "changes": self.changes.as_json()}


def report_canary(tx: Tx, canary: Backfill, gold: Sequence[GoldRecord] = ()) -> CanaryReport:
    """What it has found so far. It is scored by what people have corrected, and by `gold`: labelled
    documents, whose ids are those of nodes, or the names or addresses that sources know them by."""
    query = (
        sa.select(_c.outcome, _c.profile, _c.old, _c.new)
        .add_columns(nodes.c.id, nodes.c.title, nodes.c.external_id, nodes.c.url)
        .join(nodes, nodes.c.seq == _c.seq)
        .where(_c.backfill_id == canary.id)
        .order_by(_c.seq)
    )
    rows = tx.execute(query).all()
    done = [row for row in rows if row.outcome is not None]
    ready = [row for row in done if row.outcome == READY]
    spent, documents = _read_cost(tx, canary)
    return CanaryReport(
        canary,
        len(done),
        len(rows),
        sum(row.outcome.startswith("failed") for row in done),
        sum(row.outcome.startswith("skipped") for row in done),
        (_mean_confidence(ready, "old"), _mean_confidence(ready, "new")),
        _count_changes(ready),
        tuple(one for row in ready if (one := _changed_document(row)).fields),
        spent,
        _price_of_all(canary, spent, documents),
        _score(canary, ready, {one.id: one for one in gold}),
    )


def _mean_confidence(rows: Sequence[sa.Row[Any]], side: str) -> float | None:
    known = [one for row in rows if (one := row._mapping[side]["confidence"]) is not None]
    return round(mean(known), 4) if known else None


def _count_changes(rows: Sequence[sa.Row[Any]]) -> dict[str, dict[str, FieldChanges]]:
    counts: defaultdict[str, defaultdict[str, Counter[str]]]
    counts = defaultdict(lambda: defaultdict(Counter))
    for row in rows:
        for name, (old, new) in _sides(row).items():
            counts[row.profile][name][_kind_of_change(old, new)] += 1
    return {
        profile: {name: FieldChanges(**kinds) for name, kinds in sorted(fields.items())}
        for profile, fields in counts.items()
    }


def _sides(row: sa.Row[Any]) -> dict[str, tuple[Any, Any]]:
    old, new = row.old["fields"], row.new["fields"]
    return {name: (old.get(name), new.get(name)) for name in {**old, **new}}


def _kind_of_change(old: Any, new: Any) -> str:
    there = (bool(values_of(old)), bool(values_of(new)))
    if old == new or there == (False, False):
        return "same"
    return {(True, True): "changed", (False, True): "added", (True, False): "removed"}[there]


def _changed_document(row: sa.Row[Any]) -> ChangedDocument:
    sides = _sides(row).items()
    fields = {name: both for name, both in sides if _kind_of_change(*both) != "same"}
    return ChangedDocument(row.id, row.title or row.external_id, fields)


def _read_cost(tx: Tx, canary: Backfill) -> tuple[float, int]:
    """What the sample has cost, and how many of its documents were sent to a model."""
    c = model_calls.c
    of_sample = (
        sa.select(sa.func.coalesce(sa.func.sum(c.cost_usd), 0.0))
        .add_columns(sa.func.count(sa.distinct(c.node_id)))
        .join(nodes, nodes.c.id == c.node_id)
        .join(canary_documents, _c.seq == nodes.c.seq)
        .where(_c.backfill_id == canary.id, c.run_id.is_(None), c.called_at >= canary.created_at)
    )
    row = tx.execute(of_sample).one()
    return float(row[0]), int(row[1])


def _price_of_all(canary: Backfill, spent: float, documents: int) -> float | None:
    facts = canary.canary or {}
    estimated: float | None = facts.get("cost_usd")
    if estimated is None or not documents:
        return estimated
    return spent / documents * int(facts["extractions"])


def _score(
    canary: Backfill, rows: Sequence[sa.Row[Any]], gold: Mapping[str, GoldRecord]
) -> tuple[Evaluation, Evaluation] | None:
    """The labelled documents of the sample, scored as they were and as they would be."""
    labelled = [(row, labels) for row in rows if (labels := _labels_of(row, gold))]
    if not labelled:
        return None
    facts = canary.canary or {}
    sides = {"old": "the records", "new": str(facts.get("extractor"))}
    version = canary.selection.target.extraction_version
    before, after = (
        Evaluation(
            Setup(f"canary {canary.id}", name, version if side == "new" else "now"),
            tuple(_score_document(row, labels, side) for row, labels in labelled),
            0.0,
        )
        for side, name in sides.items()
    )
    return before, after


def _labels_of(row: sa.Row[Any], gold: Mapping[str, GoldRecord]) -> dict[str, Any]:
    """What is right in a document, by the labelled documents and by what people have corrected."""
    names = (row.id, row.external_id, row.url)
    labelled = next((gold[name].fields for name in names if name in gold), {})
    return {**labelled, **row.old["labels"]}


def _score_document(row: sa.Row[Any], labels: Mapping[str, Any], side: str) -> DocumentScore:
    stored = row._mapping[side]
    fields = score_fields(row.profile, labels, stored["extracted"], {})
    return DocumentScore(row.id, row.profile, fields, confidence=stored["confidence"])


def canary_markdown(found: Mapping[str, Any]) -> str:
    """A report, from its JSON form, as Markdown."""
    canary_id, sure = found["id"], found["confidence"]
    tables = "\n".join(map(_field_table, found["fields"].items()))
    return f"""# Canary {canary_id}: {found["done"]} documents, {found["changed"]} would change

- {found["failed"]} failed, {found["skipped"]} were skipped
- mean confidence: {_shown(sure["before"])} now, {_shown(sure["after"])} then
- {price_line(found)}

{tables}

Next: `penstock backfill show {canary_id}` · `penstock backfill promote {canary_id}` · \
`penstock backfill discard {canary_id}`
"""


def price_line(found: Mapping[str, Any]) -> str:
    """What the sample has cost, and what all documents would."""
    whole = "an unknown price" if found["all_usd"] is None else f"${found['all_usd']:.4f}"
    return (
        f"the sample has cost ${found['spent_usd']:.4f}; all {found['all_documents']} documents: "
        f"{whole}"
    )


def _field_table(of_profile: tuple[str, Mapping[str, Mapping[str, int]]]) -> str:
    profile, fields = of_profile
    rows = (f"| {name} | {' | '.join(map(str, one.values()))} |" for name, one in fields.items())
    return "\n".join([f"| {profile} | {' | '.join(_KINDS)} |", "|---|---|---|---|---|", *rows, ""])


def _shown(confidence: float | None) -> str:
    return "unknown" if confidence is None else f"{confidence:.2f}"
