"""What becomes of a site's pages, run after run: new, same, changed, removed, failed."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.crawl.simhash import from_signed, simhash, to_signed
from penstock.documents import Fault
from penstock.errors import DocumentFault, ErrorClass, UsageError
from penstock.runs.execute import open_source_run
from penstock.runs.lifecycle import RunGone, abort_run, take_run
from penstock.runs.run import Change, DocumentStatus, RunStatus
from penstock.search.nodes import list_nodes
from penstock.store.database import Database
from penstock.store.schema import nodes
from tests.contract.crawling import Crawler, crawler_on
from tests.contract.ingestion import counts
from tests.factories import TENANT
from tests.simulator import Endless, Redirect, RedirectLoop, Site, Stall, Status, WrongLength
from tests.together import wait_until


@pytest.fixture
def crawler(database: Database, tmp_path: Path) -> Iterator[Crawler]:
    with crawler_on(database, tmp_path / "home") as crawler:
        yield crawler


def add_jobs(site: Site, *names: str) -> None:
    for name in names:
        site.page(f"/jobs/{name}", title=f"Keeper {name}")


# What changed, what vanished


def test_pages_become_ready_and_the_second_run_asks_conditionally(
    crawler: Crawler, site: Site
) -> None:
    add_jobs(site, "1", "2", "3")
    first = crawler.ingest(site.sitemap_url)
    assert first.run.status is RunStatus.FINISHED
    assert counts(first) == {"ready": 3}
    assert crawler.steps.extracted == 3

    site.forget_requests()
    second = crawler.ingest(site.sitemap_url)
    assert counts(second) == {"skipped": 3}
    assert second.run.status is RunStatus.FINISHED
    assert crawler.steps.extracted == 3
    asked = site.requests("/jobs/1")[0].headers
    assert "if-none-match" in asked
    assert "if-modified-since" in asked


def test_without_tags_bytes_and_then_words_tell_whether_a_page_changed(
    crawler: Crawler, site: Site
) -> None:
    site.sends_etag = site.sends_last_modified = False
    add_jobs(site, "same", "little", "lot")
    crawler.ingest(site.sitemap_url)
    site.reword("/jobs/little")
    site.change("/jobs/lot")

    report = crawler.ingest(site.sitemap_url)

    found = crawler.documents(report.run.id)
    assert (found["same"].status, found["same"].reason) == ("skipped", "unchanged (same bytes)")
    assert found["little"].status == "skipped"
    assert "same text but for" in str(found["little"].reason)
    assert (found["lot"].status, found["lot"].change) == ("ready", Change.CHANGED)
    assert crawler.steps.extracted == 4


def test_force_works_for_a_run_for_a_source_and_for_one_document(
    crawler: Crawler, site: Site
) -> None:
    add_jobs(site, "1", "2")
    crawler.keep("weir", site.sitemap_url)
    crawler.ingest("weir")
    forced = crawler.ingest("weir", force=True)
    assert counts(forced) == {"ready": 2}
    assert (forced.changes[Change.SAME], forced.changes[Change.CHANGED]) == (2, 0)
    one = crawler.ingest("weir", documents=[f"{site.url}/jobs/2"])
    assert counts(one) == {"ready": 1, "skipped": 1}
    by_node = crawler.ingest("weir", documents=[crawler.node("/jobs/1").id])
    assert counts(by_node) == {"ready": 1, "skipped": 1}
    assert counts(crawler.ingest("weir")) == {"skipped": 2}
    crawler.keep("weir", site.sitemap_url, force=True)
    assert counts(crawler.ingest("weir")) == {"ready": 2}


def test_a_job_that_vanishes_expires_and_comes_back_with_the_job(
    crawler: Crawler, site: Site
) -> None:
    add_jobs(site, "1", "2")
    crawler.ingest(site.sitemap_url)
    site.remove("/jobs/2")
    gone = crawler.ingest(site.sitemap_url)
    assert counts(gone) == {"skipped": 1, "expired": 1}
    assert gone.changes[Change.REMOVED] == 1
    assert crawler.node("/jobs/2").expired_at is not None
    add_jobs(site, "2")
    crawler.ingest(site.sitemap_url)
    assert crawler.node("/jobs/2").expired_at is None


def test_ids_with_slashes_and_the_like_stay_apart(crawler: Crawler, site: Site) -> None:
    add_jobs(site, "a/b", "a_b", "a%2Fb")
    report = crawler.ingest(site.sitemap_url)
    assert counts(report) == {"ready": 3}
    keys = {crawler.node(f"/jobs/{name}").raw_key for name in ("a/b", "a_b", "a%2Fb")}
    assert len(keys) == 3


def test_a_page_listed_twice_is_fetched_and_counted_once(
    crawler: Crawler, site: Site, tmp_path: Path
) -> None:
    add_jobs(site, "1")
    urls = tmp_path / "urls.txt"
    urls.write_text(f"{site.url}/jobs/1\n{site.url}/jobs/1#top\n")
    assert counts(crawler.ingest(str(urls))) == {"ready": 1}
    assert len(site.requests("/jobs/1")) == 1


@pytest.mark.parametrize("kind", ["feed", "greenhouse", "lever", "ashby"])
def test_every_kind_of_list_is_recognised_and_ingested(
    crawler: Crawler, site: Site, kind: str
) -> None:
    add_jobs(site, "1", "2")
    site.shows_sitemap = False
    report = crawler.ingest(getattr(site, f"{kind}_url"))
    assert report.run.status is RunStatus.FINISHED, report.run.error
    assert counts(report) == {"ready": 2}
    titles = {crawler.node(line.external_id).title for line in crawler.documents(1).values()}
    assert {"Keeper 1", "Keeper 2"} <= titles


def test_links_are_followed_by_a_pattern_and_titles_filter_them(
    crawler: Crawler, site: Site
) -> None:
    add_jobs(site, "1", "2", "3")
    site.shows_sitemap = False
    crawler.keep("weir", site.links_url, link_pattern=r"/jobs/\d", exclude_titles=["keeper 2"])
    report = crawler.ingest("weir")
    assert counts(report) == {"ready": 2}
    assert sorted(crawler.documents(report.run.id)) == ["1", "3"]
    assert site.requests("/jobs/2") == []


def test_pages_without_a_job_are_none_of_a_source_of_jobs(crawler: Crawler, site: Site) -> None:
    add_jobs(site, "1")
    site.file("/about", b"<html><body><h1>About us</h1>We keep weirs.</body></html>")
    crawler.keep("weir", site.sitemap_url, kind="jobs")
    report = crawler.ingest("weir")
    assert list(crawler.documents(report.run.id)) == ["1"]


# What fails


def test_an_empty_listing_is_no_failed_listing(crawler: Crawler, site: Site) -> None:
    add_jobs(site, "1")
    crawler.ingest(site.sitemap_url)
    site.remove("/jobs/1")
    empty = crawler.ingest(site.sitemap_url)
    assert (empty.run.status, counts(empty)) == (RunStatus.FINISHED, {"expired": 1})

    add_jobs(site, "2")
    crawler.ingest(site.sitemap_url)
    site.trouble("/sitemap.xml", Status(500))
    failed = crawler.ingest(site.sitemap_url)
    assert (failed.run.status, counts(failed)) == (RunStatus.ERROR, {})
    assert "HTTP 500" in str(failed.run.error)
    assert crawler.node("/jobs/2").expired_at is None


def test_one_source_that_fails_spares_the_others(crawler: Crawler, site: Site) -> None:
    add_jobs(site, "1")
    crawler.keep("good", site.sitemap_url)
    crawler.keep("bad", site.feed_url)
    crawler.ingest("bad")
    site.trouble("/feed.xml", Status(503))
    assert crawler.ingest("bad").run.status is RunStatus.ERROR
    assert counts(crawler.ingest("good")) == {"ready": 1}
    with crawler.database.read() as tx:
        assert [node["expired_at"] for node in list_nodes(tx, TENANT)] == [None, None]


def test_a_page_that_fails_three_times_is_an_error_and_tried_again_next_run(
    crawler: Crawler, site: Site
) -> None:
    add_jobs(site, "1", "2")
    site.trouble("/jobs/1", Status(500))
    report = crawler.ingest(site.sitemap_url)
    assert counts(report) == {"ready": 1, "error": 1}
    assert len(site.requests("/jobs/1")) == 3
    assert crawler.documents(report.run.id)["1"].error_class == "unavailable"
    site.mend()
    assert counts(crawler.ingest(site.sitemap_url)) == {"ready": 1, "skipped": 1}


def test_two_failures_and_then_an_answer_are_no_failure(crawler: Crawler, site: Site) -> None:
    add_jobs(site, "1")
    site.trouble("/jobs/1", Status(500), times=1)
    site.trouble("/jobs/1", Status(429, retry_after=0), times=1)
    assert counts(crawler.ingest(site.sitemap_url)) == {"ready": 1}


@pytest.mark.parametrize(("failing", "is_open"), [(4, False), (5, True)])
def test_the_circuit_opens_at_five_failures_and_not_at_four(
    database: Database, tmp_path: Path, site: Site, failing: int, is_open: bool
) -> None:
    names = [f"{number:02}" for number in range(30)]
    add_jobs(site, *names)
    for name in names[:failing]:
        site.trouble(f"/jobs/{name}", Status(500))
    urls = tmp_path / "urls.txt"
    urls.write_text("\n".join(f"{site.url}/jobs/{name}" for name in names))
    with crawler_on(database, tmp_path / "home", crawl_threads=1) as crawler:
        report = crawler.ingest(str(urls))
        rest = [crawler.documents(report.run.id)[name] for name in names[failing:]]
        asked = [name for name in names if site.requests(f"/jobs/{name}")]
        # An open circuit leaves nothing but failures.
        assert report.run.status is (RunStatus.ERROR if is_open else RunStatus.FINISHED)
        if is_open:
            assert counts(report) == {"error": 30}
            assert asked == names[:5]
            assert all("circuit" in str(line.reason) for line in rest)
        else:
            assert counts(report) == {"ready": 26, "error": 4}
        site.mend()
        assert report.counts[DocumentStatus.EXPIRED] == 0
        assert crawler.ingest(str(urls)).counts[DocumentStatus.READY] == (30 if is_open else 4)


def test_pages_that_are_gone_do_not_open_the_circuit(crawler: Crawler, site: Site) -> None:
    add_jobs(site, *map(str, range(12)))
    for number in range(8):
        site.trouble(f"/jobs/{number}", Status(404))
    assert counts(crawler.ingest(site.sitemap_url)) == {"ready": 4, "error": 8}


def test_raw_bytes_that_cannot_be_stored_are_an_error_and_tried_again(
    crawler: Crawler, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_jobs(site, "1")

    def refuse(*_: object) -> str:
        raise DocumentFault(ErrorClass.UNAVAILABLE, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(crawler.app.raw, "put", refuse)
        report = crawler.ingest(site.sitemap_url)
    assert counts(report) == {"error": 1}
    assert "no space left" in str(crawler.documents(report.run.id)["1"].reason)
    assert counts(crawler.ingest(site.sitemap_url)) == {"ready": 1}


def test_a_failed_extraction_of_an_unchanged_page_is_made_good_next_run(
    crawler: Crawler, site: Site
) -> None:
    add_jobs(site, "1")
    crawler.steps.fault = Fault(ErrorClass.CORRUPTION, "no model understands this")
    assert counts(crawler.ingest(site.sitemap_url)) == {"error": 1}
    crawler.steps.fault = None
    again = crawler.ingest(site.sitemap_url)
    assert counts(again) == {"ready": 1}
    assert counts(crawler.ingest(site.sitemap_url)) == {"skipped": 1}


def test_pages_that_misbehave_cost_themselves_and_nobody_else(
    database: Database, tmp_path: Path, site: Site
) -> None:
    add_jobs(site, "good", "loop", "private", "longer", "endless")
    site.trouble("/jobs/loop", RedirectLoop())
    site.trouble("/jobs/private", Redirect("http://169.254.169.254/latest/meta-data/"))
    site.trouble("/jobs/longer", WrongLength(1000))
    site.trouble("/jobs/endless", Endless())
    with crawler_on(database, tmp_path / "home", max_document_bytes=1 << 20) as crawler:
        report = crawler.ingest(site.sitemap_url)
        found = crawler.documents(report.run.id)
        assert found["good"].status == "ready"
        assert found["endless"].error_class == "too_large"
        assert found["longer"].error_class == "unavailable"
        assert counts(report) == {"ready": 1, "error": 4}


def test_similar_by_three_bits_is_the_same_and_by_four_is_not(crawler: Crawler, site: Site) -> None:
    site.sends_etag = site.sends_last_modified = False
    add_jobs(site, "1")
    crawler.ingest(site.sitemap_url)
    committed = from_signed(crawler.node("/jobs/1").simhash)
    # The highest bit among them, which makes the stored number negative or positive.
    three, four = 1 << 63 | 0b11, 1 << 63 | 0b111
    for flipped, status in ((three, "skipped"), (four, "ready")):
        _set_marks(crawler, to_signed(committed ^ flipped))
        report = crawler.ingest(site.sitemap_url)
        assert crawler.documents(report.run.id)["1"].status == status


def _set_marks(crawler: Crawler, fingerprint: int) -> None:
    """As if the last version had had other bytes, and words so far from the present ones."""
    with crawler.database.write() as tx:
        tx.execute(sa.update(nodes).values(content_hash="other", simhash=fingerprint))


def test_pages_without_words_are_compared_by_their_bytes(crawler: Crawler, site: Site) -> None:
    assert simhash("") == 0
    site.sends_etag = site.sends_last_modified = False
    add_jobs(site, "1")
    crawler.ingest(site.sitemap_url)
    _set_marks(crawler, 0)
    assert counts(crawler.ingest(site.sitemap_url)) == {"ready": 1}


# A run that always ends right


def test_a_run_that_is_missing_or_aborted_crawls_nothing(crawler: Crawler, site: Site) -> None:
    add_jobs(site, "1")
    run = open_source_run(crawler.app.sources, site.sitemap_url, TENANT)
    abort_run(crawler.database, crawler.app.queue, run.id, reason="never mind")
    with pytest.raises(RunGone, match="aborted already"):
        take_run(crawler.database, run.id, lease_seconds=60)
    assert site.requests() == []
    assert crawler.report(run.id).run.finished_at is not None
    with pytest.raises(UsageError, match="aborted already"):
        abort_run(crawler.database, crawler.app.queue, run.id, reason="again")


def test_an_abort_while_listing_ends_the_crawl(crawler: Crawler, site: Site) -> None:
    add_jobs(site, "1")
    site.trouble("/sitemap.xml", Stall())
    lease = crawler.start(site.sitemap_url)
    outcome = _in_background(crawler, lease)
    wait_until(lambda: bool(site.requests("/sitemap.xml")))
    abort_run(crawler.database, crawler.app.queue, lease.run.id, reason="enough")
    site.mend()
    site.server.stop()
    outcome.join(60)
    assert not outcome.is_alive()
    report = crawler.report(lease.run.id)
    assert (report.run.status, counts(report)) == (RunStatus.ABORTED, {})


def test_an_abort_in_the_middle_of_a_crawl_asks_for_no_more_pages(
    crawler: Crawler, site: Site
) -> None:
    add_jobs(site, *map(str, range(300)))
    # So slow that the abort comes long before the half of them.
    site.latency_seconds = 0.2
    lease = crawler.start(site.sitemap_url)
    outcome = _in_background(crawler, lease)
    wait_until(lambda: len(site.requests()) > 20)
    abort_run(crawler.database, crawler.app.queue, lease.run.id, reason="enough")
    outcome.join(60)
    assert not outcome.is_alive()
    asked = len(site.requests())
    assert asked < 150
    report = crawler.report(lease.run.id)
    assert report.run.status is RunStatus.ABORTED
    assert report.run.finished_at is not None
    assert crawler.active_items() == 0
    assert set(counts(report)) <= {"pending"}
    crawler.drain()
    assert crawler.steps.extracted == 0

    site.latency_seconds = 0.0
    assert counts(crawler.ingest(site.sitemap_url)) == {"ready": 300}


def test_an_abort_in_the_middle_of_an_extraction_changes_nothing_more(
    crawler: Crawler, site: Site
) -> None:
    add_jobs(site, "1", "2")
    lease = crawler.start(site.sitemap_url)
    crawler.admit(lease)
    crawler.steps.before_extraction = lambda: abort_run(
        crawler.database, crawler.app.queue, lease.run.id, reason="enough"
    )
    crawler.drain()
    crawler.steps.before_extraction = lambda: None
    report = crawler.report(lease.run.id)
    assert (report.run.status, counts(report)) == (RunStatus.ABORTED, {"pending": 2})
    node = crawler.node("/jobs/1")
    assert (node.extraction_status, node.embedding_status, node.content_hash) == (None, None, None)
    assert crawler.active_items() == 0
    assert counts(crawler.ingest(site.sitemap_url)) == {"ready": 2}


def _in_background(crawler: Crawler, lease: object) -> threading.Thread:
    def admit() -> None:
        with pytest.raises(RunGone):
            crawler.admit(lease)  # type: ignore[arg-type]

    thread = threading.Thread(target=admit)
    thread.start()
    return thread
