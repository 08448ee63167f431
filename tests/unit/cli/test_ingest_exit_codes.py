"""How `penstock ingest` and `resume` end for a script that looks at the exit code alone."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer

from entrypoints.cli import ingest
from entrypoints.cli.ingest import IngestResult
from penstock.documents import Stage
from penstock.runs.costs import Spending
from penstock.runs.report import RunReport, StageProgress
from penstock.runs.run import Change, DocumentStatus, Run, RunStatus

NOON = datetime(2031, 5, 4, 12, tzinfo=UTC)


def make_result(counts: dict[str, int], status: RunStatus = RunStatus.FINISHED) -> IngestResult:
    run = Run(
        id=1,
        tenant_id="acme",
        source_id=1,
        source_name="papers",
        source_kind="folder",
        location="/papers",
        settings={},
        profile=None,
        force=False,
        forced=None,
        status=status,
        configuration=None,
        paused_reason=None,
        error=None,
        flow_run_id=None,
        created_at=NOON,
        started_at=NOON,
        finished_at=NOON,
    )
    every = {one: counts.get(one.value, 0) for one in DocumentStatus}
    changes = dict.fromkeys(Change, 0)
    stages = {stage: StageProgress() for stage in Stage}
    spending = Spending({}, {}, 0)
    return IngestResult(RunReport(run, every, stages, changes, spending, 1.0, listed=True), "")


@pytest.mark.parametrize(
    ("counts", "code"),
    [
        ({}, 0),
        ({"ready": 2}, 0),
        ({"skipped": 2}, 0),
        ({"error": 1}, 1),
        ({"ready": 2, "error": 1}, 1),
        ({"skipped": 2, "error": 1}, 1),
    ],
)
def test_any_failed_document_is_fatal_when_strict_and_only_then(
    counts: dict[str, int], code: int
) -> None:
    assert make_result(counts).exit_code(strict=True) == code
    assert make_result(counts).exit_code(strict=False) == 0


@pytest.mark.parametrize("status", [one for one in RunStatus if one is not RunStatus.FINISHED])
def test_a_run_that_is_not_finished_is_never_a_success(status: RunStatus) -> None:
    assert make_result({"ready": 2}, status).exit_code(strict=False) == 1


@pytest.mark.parametrize(("strict", "code"), [(True, 1), (False, 0)])
def test_a_resumed_run_with_a_failed_document_is_fatal_when_strict_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict: bool, code: int
) -> None:
    paused = make_result({}, RunStatus.INGESTING).report.run

    def end(*_: Any) -> IngestResult:
        return make_result({"ready": 2, "error": 1})

    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setattr(ingest, "read_run", lambda *_: paused)
    monkeypatch.setattr(ingest, "_run_to_end", end)
    with pytest.raises(typer.Exit) as raised:
        ingest.resume(paused.id, strict=strict, json=True)
    assert raised.value.exit_code == code
