"""Buttons do what they say, after a question where it cannot be undone."""

from collections.abc import Iterator
from contextlib import closing

import pytest
import sqlalchemy as sa
from playwright.sync_api import Dialog, Page

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.store.schema import nodes, runs, work_items
from tests.contract.ingestion import make_text
from tests.dashboard.browser.house import House
from tests.dashboard.furnishing import Workshop


@pytest.fixture
def shop(house: House, request: pytest.FixtureRequest) -> Iterator[Workshop]:
    """A tenant of this test alone, with two documents and two that cannot be read."""
    with closing(house.open_shop("papers", tenant=request.node.name)) as shop:
        for name in ("mill", "weir"):
            shop.write(f"{name}.txt", make_text(name, "sluice gates"))
        for name in ("bad", "worse"):
            shop.write(f"{name}.txt", make_text(name, "unreadable things"))
        broken = Fault(ErrorClass.CORRUPTION, "it is broken")
        shop.steps.on(Stage.TEXT, "unreadable", broken, broken)
        shop.ingest()
        yield shop


@pytest.fixture
def page(page: Page, shop: Workshop) -> Page:
    change_tenant(page, shop.tenant)
    return page


def change_tenant(page: Page, tenant: str) -> None:
    page.goto("/ui/runs")
    page.fill("#tenant", tenant)
    page.click("text=Change")
    page.wait_for_selector(f"text=Switched to tenant {tenant}.")


class Asked(list[str]):
    """Answers every question of the page, and remembers it."""

    def __init__(self, page: Page, *, agree: bool) -> None:
        super().__init__()
        self._agree = agree
        page.on("dialog", self._answer)

    def _answer(self, dialog: Dialog) -> None:
        self.append(dialog.message)
        if self._agree:
            dialog.accept()
        else:
            dialog.dismiss()


def press(page: Page, label: str, said: str) -> None:
    # The page before may have said the same.
    with page.expect_navigation():
        page.get_by_role("button", name=label, exact=True).click()
    page.wait_for_selector(f".said:has-text('{said}')")


def test_a_job_that_hangs_is_retried_by_its_button(page: Page, shop: Workshop) -> None:
    job_id = shop.get_stuck("mill.txt")
    page.goto("/ui/queues")
    assert "worker-that-hangs" in page.inner_text("[aria-labelledby=stuck-title]")

    press(page, f"Retry job {job_id}", f"Job {job_id} restarted.")

    job = shop.job(job_id)
    assert (job.status, job.attempts, job.lease_owner) == ("pending", 0, None)
    assert "No jobs in processing" in page.inner_text("[aria-labelledby=stuck-title]")


def test_dead_letters_are_replayed_one_by_one_and_all_at_once(page: Page, shop: Workshop) -> None:
    bad, worse = shop.job_of("bad.txt"), shop.job_of("worse.txt")
    page.goto("/ui/queues")
    press(page, f"Replay job {bad}", "Retrying 1 failed text job.")
    assert shop.job(bad).status == "pending"
    assert shop.job(worse).status == "failed"

    refusing = Asked(page, agree=False)
    page.get_by_role("button", name="Replay all of text").click()
    assert len(refusing) == 1
    assert "Retry all failed text jobs?" in refusing[0]
    assert shop.job(worse).status == "failed", "whoever says no changes nothing"
    page.remove_listener("dialog", refusing._answer)
    Asked(page, agree=True)
    press(page, "Replay all of text", "Retrying 1 failed text job.")

    assert shop.job(worse).status == "pending"
    assert "None." in page.inner_text("[aria-labelledby=letters-title]")


def test_a_document_shows_what_changed_and_is_refreshed_and_deleted(
    page: Page, shop: Workshop
) -> None:
    shop.extract_again("mill.txt", place="Ulm", topics=["mills", "weirs"])
    node = shop.node_named("mill.txt")
    page.goto(f"/ui/documents/{node.id}")
    versions = page.locator("section[aria-label=Versions] tbody tr")
    assert versions.count() == 2
    changed = dict(
        zip(
            versions.nth(0).locator("dl.changes > dt").all_inner_texts(),
            versions.nth(0).locator("dl.changes > dd").all(),
            strict=True,
        )
    )
    assert changed["place"].locator("ins").inner_text() == "Ulm"
    assert changed["topics"].locator("ins li").all_inner_texts() == ["mills", "weirs"]
    assert "first extraction" in versions.nth(1).inner_text()

    press(page, "Refresh", "queued")
    press(page, "Refresh", "already in progress")
    with shop.database.read() as tx:
        own = sa.and_(work_items.c.node_id == node.id, work_items.c.status == "pending")
        assert len(tx.execute(sa.select(work_items.c.id).where(own)).all()) == 1

    refusing = Asked(page, agree=False)
    page.get_by_role("button", name="Delete", exact=True).click()
    assert "cannot be undone" in refusing[0]
    assert shop.node_named("mill.txt").id == node.id
    page.remove_listener("dialog", refusing._answer)
    Asked(page, agree=True)
    press(page, "Delete", "Document deleted")

    with shop.database.read() as tx:
        assert tx.execute(sa.select(nodes).where(nodes.c.id == node.id)).first() is None
    page.goto(f"/ui/documents/{node.id}")
    assert "Not found" in page.inner_text("h1")


def test_raw_bytes_are_downloaded_as_they_came(page: Page, shop: Workshop) -> None:
    page.goto(f"/ui/documents/{shop.node_named('weir.txt').id}")

    with page.expect_download() as started:
        page.click("text=Raw bytes")

    assert started.value.path().read_text() == make_text("weir", "sluice gates")


def test_a_run_is_aborted_and_what_failed_is_retried(page: Page, shop: Workshop) -> None:
    run_id = shop.open().run.id
    Asked(page, agree=True)
    page.goto(f"/ui/runs/{run_id}")
    press(page, "Abort", f"Run {run_id} aborted.")
    with shop.database.read() as tx:
        row = tx.execute(sa.select(runs).where(runs.c.id == run_id)).one()
    assert (row.status, row.error) == ("aborted", "aborted on the dashboard")

    page.goto(f"/ui/runs/{first_run(shop)}")
    press(page, "Retry failed", "Retrying 2 of 2 failed jobs.")
    assert shop.job(shop.job_of("bad.txt")).status == "pending"


def first_run(shop: Workshop) -> int:
    with shop.database.read() as tx:
        own = sa.select(sa.func.min(runs.c.id)).where(runs.c.tenant_id == shop.tenant)
        return int(tx.execute(own).scalar_one())


def test_the_documents_of_a_run_are_filtered(page: Page, shop: Workshop) -> None:
    page.goto(f"/ui/runs/{first_run(shop)}")
    names = page.locator("[aria-label='Documents of this run'] tbody td:first-child")
    assert names.count() == 4

    page.select_option("select[name=status]", "error")
    page.click("button:has-text('Filter')")
    page.wait_for_url("**status=error**")

    assert names.all_inner_texts() == ["bad.txt", "worse.txt"]
    page.click("section[aria-label=Failures] th a")
    page.wait_for_url("**error_class=corruption**")
    assert names.count() == 2
