"""A canary: a sample beside the old records, which stay until it is promoted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock import failpoints
from penstock.backfill.backfill import Backfill, BackfillStatus, abort_backfill, read_backfill
from penstock.backfill.canary import (
    CanaryWork,
    canary_work,
    count_done,
    discard_canary,
    open_canary,
    promote_canary,
)
from penstock.backfill.canary_report import CanaryReport, FieldChanges, report_canary
from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass, Interrupted, NotFound, UsageError
from penstock.evaluation.gold import GoldRecord
from penstock.operations.nodes import delete_node
from penstock.runs.up_to_date import Reason
from penstock.store.database import Database
from penstock.store.schema import canary_documents, extractions, nodes
from penstock.testing import GroqServer
from tests.contract.backfilling import UP_TO_DATE, Archive
from tests.contract.ingestion import make_text
from tests.contract.modelling import KEY, make_answer
from tests.factories import TENANT
from tests.together import run_together

pytestmark = pytest.mark.both_databases

OLD: dict[str, Any] = {
    "extraction_version": "0.9.0",
    "extraction_confidence": 0.5,
    "fields": {"title": "Before", "topics": ["mills"]},
}
BROKEN = Fault(ErrorClass.CORRUPTION, "the text is broken")
BUSY = Fault(ErrorClass.RATE_LIMITED, "too many requests", retry_after_seconds=0.01)
PASSING = Fault(ErrorClass.UNKNOWN, "an answer that cannot be read", retry_after_seconds=0.01)


@pytest.fixture
def archive(database: Database, tmp_path: Path) -> Iterator[Archive]:
    archive = Archive(database, tmp_path / "home")
    yield archive
    archive.close()


@pytest.fixture
def old(archive: Archive) -> list[str]:
    """Outdated nodes."""
    texts = [make_text(f"Paper {number}") for number in range(6)]
    return [archive.put(text=one, external_id=f"{one[:7]}.txt", **OLD) for one in texts]


def start(archive: Archive, size: int = 3, **wanted: Any) -> Backfill:
    return open_canary(archive.app, archive.choose(Reason.OUTDATED, **wanted), size)


def work(archive: Archive, canary: Backfill, batch_size: int = 64) -> CanaryWork:
    made = canary_work(archive.app, canary.id, archive.steps)
    made.batch_size = batch_size
    return made


def run(archive: Archive, size: int = 3) -> Backfill:
    canary = start(archive, size)
    for _ in work(archive, canary).run():
        pass
    return canary


def report(archive: Archive, canary: Backfill, *gold: GoldRecord) -> CanaryReport:
    with archive.database.read() as tx:
        return report_canary(tx, read_backfill(tx, canary.id), gold)


def versions(archive: Archive) -> dict[str | None, int]:
    count = sa.select(nodes.c.extraction_version, sa.func.count())
    with archive.database.read() as tx:
        rows = tx.execute(count.group_by(nodes.c.extraction_version)).all()
    return {row[0]: row[1] for row in rows}


def count_rows(archive: Archive, table: sa.Table) -> int:
    with archive.database.read() as tx:
        return int(tx.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


# ---- the sample ----------------------------------------------------------------------------


def test_a_sample_is_extracted_and_the_records_stay_as_they_are(
    archive: Archive, old: list[str]
) -> None:
    before = [archive.read(node) for node in old]
    archive.put()

    canary = run(archive)

    found = report(archive, canary)
    assert (found.done, found.total, found.failed, found.skipped) == (3, 3, 0, 0)
    assert [archive.read(node) for node in old] == before
    assert archive.waiting() == []
    assert found.fields["document"]["title"] == FieldChanges(changed=3)
    assert found.confidence[0] == 0.5
    assert (found.spent_usd, found.all_usd) == (0.0, 0.0)
    shown = found.as_json()
    assert shown["all_documents"] == 6
    assert {one["node_id"] for one in shown["examples"]} < {*old}, "spread over all of them"
    assert old[0] in {one["node_id"] for one in shown["examples"]}
    assert old[1] not in {one["node_id"] for one in shown["examples"]}


def test_while_it_is_undecided_outdated_records_are_left_alone(
    archive: Archive, old: list[str]
) -> None:
    canary = run(archive)
    assert archive.estimate(Reason.OUTDATED).nodes == 0
    assert archive.backfill(Reason.OUTDATED).enqueued == 0
    other = archive.put(tenant_id="globex", **OLD)
    assert archive.estimate(Reason.OUTDATED, all_tenants=True).nodes == 1, "of its tenant alone"
    failed = archive.put(extraction_status="failed", extraction_version=None)
    assert archive.estimate(Reason.FAILED).nodes == 1
    assert {other, failed}.isdisjoint(old)
    discard_canary(archive.database, canary.id)
    assert archive.estimate(Reason.OUTDATED).nodes == len(old)


@pytest.mark.usefixtures("old")
def test_an_unchanged_page_keeps_its_record_in_a_run_meanwhile(archive: Archive) -> None:
    archive.write("page.txt", make_text("Page"))
    archive.ingest()
    with archive.database.write() as tx:
        outdated = {"extraction_version": "0.9.0", "fields": {"title": "Before"}}
        tx.execute(sa.update(nodes).where(nodes.c.external_id == "page.txt").values(outdated))
    canary = run(archive)
    archive.ingest()
    assert archive.node("page.txt").fields == {"title": "Before"}
    discard_canary(archive.database, canary.id)
    archive.ingest()
    assert archive.node("page.txt").extraction_version == UP_TO_DATE


def test_nothing_to_extract_is_told(archive: Archive) -> None:
    archive.put()
    with pytest.raises(NotFound, match="no document would be extracted again"):
        start(archive)


def test_a_second_canary_has_to_wait_and_the_same_one_is_taken_up(
    archive: Archive, old: list[str]
) -> None:
    del old
    canary = start(archive)
    assert start(archive).id == canary.id
    with pytest.raises(UsageError, match=rf"backfill promote {canary.id}"):
        start(archive, limit=2)
    with pytest.raises(UsageError, match="is undecided"):
        abort_backfill(archive.database, archive.app.queue, canary.id)


# ---- faults, kills, stops ------------------------------------------------------------------


def test_a_passing_fault_is_tried_again_and_a_lasting_one_is_told(
    archive: Archive, old: list[str]
) -> None:
    archive.steps.on(Stage.EXTRACT, "Paper 0", BUSY, BUSY, BUSY)
    archive.steps.on(Stage.EXTRACT, "Paper 2", BROKEN)
    archive.steps.on(Stage.EXTRACT, "Paper 4", PASSING, PASSING)
    found = report(archive, run(archive))
    assert (found.done, found.failed) == (3, 2)
    assert [one.node_id for one in found.changed] == [old[0]]


@pytest.mark.usefixtures("old")
def test_after_a_failure_the_same_documents_are_free_and_not_asked_for_again(
    archive: Archive,
) -> None:
    canary = start(archive)
    failpoints.arm("canary.answered=full")
    with pytest.raises(OSError, match="No space"):
        list(work(archive, canary, batch_size=2).run())
    failpoints.arm(None)
    assert archive.steps.count(Stage.EXTRACT) == 2
    assert [*work(archive, canary).run()][-1] == (3, 3)
    assert archive.steps.count(Stage.EXTRACT) == 1, "answers are kept as they come"


@pytest.mark.usefixtures("old")
def test_what_a_killed_process_had_claimed_is_done_when_its_lease_has_run_out(
    archive: Archive,
) -> None:
    canary = start(archive)
    assert len(work(archive, canary, batch_size=2)._claim("of a process that was killed")) == 2
    steps = work(archive, canary).run()
    assert next(steps) == (0, 3)
    assert next(steps) == (1, 3), "the others are claimed"
    with archive.database.write() as tx:
        held = canary_documents.c.lease_token.is_not(None)
        ended = {"lease_expires_at": archive.ago(1)}
        tx.execute(sa.update(canary_documents).where(held).values(ended))
    assert [*steps][-1] == (3, 3)


def test_two_processes_share_the_work(archive: Archive, old: list[str]) -> None:
    canary = start(archive, len(old))
    works = [work(archive, canary, batch_size=1) for _ in range(2)]
    run_together(2, lambda number: [*works[number].run()])
    assert archive.steps.count(Stage.EXTRACT) == len(old)
    with archive.database.read() as tx:
        assert count_done(tx, canary.id) == (len(old), len(old))


@pytest.mark.usefixtures("old")
def test_one_that_is_stopped_goes_on_later(archive: Archive) -> None:
    canary = start(archive)
    stopped = work(archive, canary, batch_size=1)
    steps = stopped.run()
    next(steps)
    stopped.stop()
    with pytest.raises(Interrupted, match=f"canary {canary.id}"):
        list(steps)
    assert [*work(archive, canary).run()][-1] == (3, 3)


@pytest.mark.usefixtures("old")
def test_one_that_is_decided_meanwhile_is_not_worked_on(archive: Archive) -> None:
    canary = start(archive)
    working = work(archive, canary)
    discard_canary(archive.database, canary.id)
    with pytest.raises(UsageError, match="is discarded"):
        working._work_once()


def test_a_node_that_is_deleted_leaves_the_sample(archive: Archive, old: list[str]) -> None:
    canary = run(archive)
    delete_node(archive.database, archive.app.queue, archive.app.raw, TENANT, old[0])
    assert report(archive, canary).total == 2


# ---- promote and discard -------------------------------------------------------------------


def test_promoting_takes_its_answers_over_and_asks_for_the_rest(
    archive: Archive, old: list[str]
) -> None:
    canary = run(archive)
    assert archive.steps.count(Stage.EXTRACT) == 3

    promoted = promote_canary(archive.app, canary.id)
    done = archive.backfill(Reason.OUTDATED)

    assert promoted.status is BackfillStatus.PROMOTED
    assert promoted.canary is not None
    assert promoted.canary["report"]["changed"] == 3
    assert (done.status, done.enqueued) == (BackfillStatus.FINISHED, len(old))
    assert archive.steps.count(Stage.EXTRACT) == 3, "only the rest"
    assert versions(archive) == {UP_TO_DATE: 6}
    assert archive.read(old[0]).fields["title"] != "Before"
    assert count_rows(archive, canary_documents) == 0
    assert promote_canary(archive.app, canary.id) == promoted, "a killed one is taken up"


def test_discarding_forgets_its_answers(archive: Archive, old: list[str]) -> None:
    del old
    canary = run(archive)
    assert count_rows(archive, extractions) == 3

    discarded = discard_canary(archive.database, canary.id)

    assert discarded.status is BackfillStatus.DISCARDED
    assert (count_rows(archive, extractions), count_rows(archive, canary_documents)) == (0, 0)
    assert versions(archive) == {"0.9.0": 6}
    with pytest.raises(UsageError, match="is discarded, not an undecided canary"):
        promote_canary(archive.app, canary.id)


@pytest.mark.usefixtures("old")
def test_an_unfinished_one_is_not_promoted(archive: Archive) -> None:
    canary = start(archive)
    with pytest.raises(UsageError, match="has done 0 of 3 documents"):
        promote_canary(archive.app, canary.id)


@pytest.mark.usefixtures("old")
def test_only_what_was_tried_is_promoted(archive: Archive) -> None:
    canary = run(archive)
    extraction = archive.app.settings.extraction.model_copy(update={"version": "7.0.0"})
    archive.app.settings = archive.app.settings.model_copy(update={"extraction": extraction})
    with pytest.raises(UsageError, match=r"version 1\.0\.0 .* now it is .* version 7\.0\.0"):
        promote_canary(archive.app, canary.id)
    assert report(archive, canary).canary.status is BackfillStatus.CANARY


def test_another_tenant_can_neither_see_nor_decide_it(archive: Archive, old: list[str]) -> None:
    del old
    canary = run(archive)
    with pytest.raises(NotFound):
        promote_canary(archive.app, canary.id, "globex")
    with pytest.raises(NotFound):
        discard_canary(archive.database, canary.id, "globex")


# ---- scores and prices ---------------------------------------------------------------------


def test_labelled_documents_say_whether_it_is_better(archive: Archive, old: list[str]) -> None:
    archive.steps.fields = {"title": "Paper"}
    canary = run(archive)
    gold = (
        GoldRecord(old[0], {"title": "Paper"}, "document"),
        GoldRecord("Paper 2.txt", {"title": "Before"}, "document"),
        GoldRecord("elsewhere", {"title": "Other"}, "document"),
    )
    found = report(archive, canary, *gold)
    assert found.changes is not None
    assert [one.id for one in found.changes.better] == [old[0]]
    assert [one.id for one in found.changes.worse] == [old[2]]
    assert found.as_json()["scores"]["after"]["counts"]["documents"] == 2
    assert report(archive, canary).scores is None


def test_what_people_corrected_stays_and_says_whether_it_is_better(
    archive: Archive, old: list[str]
) -> None:
    archive.app.decider.correct(TENANT, old[0], {"title": "Paper"}, author="ada")
    archive.steps.fields = {"title": "Paper"}
    found = report(archive, run(archive))
    assert found.fields["document"]["title"] == FieldChanges(same=1, changed=2)
    assert found.changes is not None
    assert [(one.id, one.before, one.after) for one in found.changes.better] == [(old[0], 0.0, 1.0)]


@pytest.mark.full_suite
def test_the_price_of_all_is_that_of_the_sample_times_as_many(
    archive: Archive, old: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with GroqServer(make_answer(), api_key=KEY) as server:
        monkeypatch.setenv("GROQ_API_KEY", KEY)
        with_models(archive, server.base_url)
        found = report(archive, run(archive))
        asked = server.count()
        assert asked >= 3
        assert found.spent_usd > 0
        assert found.all_usd == pytest.approx(found.spent_usd * len(old) / 3)
        promote_canary(archive.app, found.canary.id)
        archive.backfill(Reason.OUTDATED)
        assert server.count() == 2 * asked, "the sample is not asked for again"


def with_models(archive: Archive, base_url: str) -> None:
    from penstock.settings import load_settings

    extraction = archive.app.settings.extraction.model_copy(update={"base_url": base_url})
    key = load_settings().groq_api_key
    changed = {"extraction": extraction, "groq_api_key": key}
    archive.app.settings = archive.app.settings.model_copy(update=changed)
    del archive.app.extractor
