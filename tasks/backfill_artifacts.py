"""What a backfill shows in the Prefect UI: its estimate, a live progress bar, and its end."""

import time
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    update_progress_artifact,
)

from penstock.backfill.estimate import Estimate
from tasks.best_effort import best_effort

REFRESH_SECONDS = 2.0


class BackfillProgress:
    """A progress bar that is written at most every few seconds."""

    def __init__(self, backfill_id: int, expected: int) -> None:
        self._backfill_id = backfill_id
        self._expected = expected
        self._id: UUID | None = None
        self._written_at = 0.0

    def due(self) -> bool:
        return time.monotonic() - self._written_at >= REFRESH_SECONDS

    def show(self, enqueued: int, left: int) -> None:
        self._written_at = time.monotonic()
        with best_effort(f"the progress of backfill {self._backfill_id}"):
            self._draw(enqueued, left)

    def _draw(self, enqueued: int, left: int) -> None:
        if self._id is None:
            self._id = create_progress_artifact(  # type: ignore[assignment]  # sync here
                progress=0.0, key=f"backfill-{self._backfill_id}-progress"
            )
        done, whole = max(0, enqueued - left), max(self._expected, enqueued)
        update_progress_artifact(
            artifact_id=self._id,  # type: ignore[arg-type]  # set above
            progress=100.0 * done / whole if whole else 100.0,
            description=f"Backfill {self._backfill_id}: {done} of {whole} nodes done",
        )


def publish_estimate(estimate: Estimate) -> None:
    """Leave behind what a dry run found."""
    with best_effort("the estimate of the backfill"):
        create_markdown_artifact(
            key="backfill-estimate",
            markdown=estimate_markdown(estimate),
            description=f"Dry run: {estimate.selection}",
        )


def publish_end(figures: dict[str, Any]) -> None:
    """Leave behind what became of it."""
    with best_effort(f"the summary of backfill {figures['id']}"):
        create_markdown_artifact(
            key=f"backfill-{figures['id']}-summary",
            markdown=_end_markdown(figures),
            description=f"Backfill {figures['id']}",
        )


def estimate_markdown(estimate: Estimate) -> str:
    """The estimate as Markdown."""
    reasons = _rows(estimate.reasons)
    stages = _rows(estimate.stages)
    return f"""# Backfill of {estimate.selection}: dry run

{estimate.nodes} of {estimate.matching} nodes, {estimate.extractions} extractions, \
estimated cost {estimate.cost}. Nothing was changed.

| reason | nodes |
|---|---|
{reasons}

| begins with | nodes |
|---|---|
{stages}
"""


def _rows(counts: Any) -> str:
    return "\n".join(f"| {name} | {count} |" for name, count in counts.items())


def _end_markdown(figures: dict[str, Any]) -> str:
    return f"""# Backfill {figures["id"]}: {figures["status"]}

- {figures["enqueued"]} nodes were put to work, {figures["failed"]} failed
- reasons: {", ".join(figures["reasons"])}
- vectors: {figures["vectors"] or "as they were"}

Next: `penstock status` · `penstock jobs list --status failed`
"""
