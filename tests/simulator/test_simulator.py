import itertools
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from penstock.crawl.simhash import distance, simhash, visible_text
from tests.simulator import (
    ANYWHERE,
    Drip,
    Empty,
    Endless,
    EndlessHeaders,
    GzipBomb,
    Redirect,
    RedirectLoop,
    Reset,
    Site,
    Slow,
    Stall,
    Status,
    WrongLength,
    running_site,
)
from tests.simulator.visit import Visit
from tests.together import run_together, wait_until


@pytest.fixture
def browser() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=30, trust_env=False) as browser:
        yield browser


def fingerprint(browser: httpx.Client, url: str) -> int:
    return simhash(visible_text(browser.get(url).content))


def test_a_page_is_a_job_posting_of_a_few_kilobytes(site: Site, browser: httpx.Client) -> None:
    answer = browser.get(site.page("/jobs/1", "Sluice keeper", "Keep the <sluice>."))
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    for part in ('"@type": "JobPosting"', "<nav>", "<footer>", "Keep the &lt;sluice&gt;."):
        assert part in answer.text
    shown = " ".join(visible_text(answer.content).split())
    assert shown == "Sluice keeper Weir & Sons, Lyon Keep the <sluice>."
    assert 3_000 < len(browser.get(site.page("/jobs/2", "Lock keeper")).content) < 12_000


def test_no_two_jobs_look_alike(site: Site, browser: httpx.Client) -> None:
    urls = [site.page(f"/jobs/{number}", "Lock keeper") for number in range(60)]
    prints = [fingerprint(browser, url) for url in urls]
    assert min(distance(a, b) for a, b in itertools.combinations(prints, 2)) > 3


def test_a_page_changes_not_at_all_a_little_or_a_lot(site: Site, browser: httpx.Client) -> None:
    for number in range(20):
        url = site.page(f"/jobs/{number}", "Lock keeper")
        content, before = browser.get(url).content, fingerprint(browser, url)
        site.touch(f"/jobs/{number}")
        assert browser.get(url).content != content
        assert fingerprint(browser, url) == before
        text = visible_text(browser.get(url).content)
        site.reword(f"/jobs/{number}")
        assert visible_text(browser.get(url).content) != text
        assert distance(fingerprint(browser, url), before) <= 3
        site.change(f"/jobs/{number}")
        assert distance(fingerprint(browser, url), before) > 3


def test_a_removed_page_is_gone_and_off_the_lists(site: Site, browser: httpx.Client) -> None:
    url = site.page("/jobs/1", "Sluice keeper")
    site.remove("/jobs/1", status=410)
    assert browser.get(url).status_code == 410
    assert url not in browser.get(site.sitemap_url).text
    site.page("/jobs/1", "Sluice keeper")
    assert browser.get(url).status_code == 200


def test_every_list_names_every_job(site: Site, browser: httpx.Client) -> None:
    urls = [site.page(f"/jobs/{number}", f"Keeper {number}") for number in range(3)]
    hidden = site.page("/jobs/hidden", "Ghost", is_listed=False)
    lists = (site.sitemap_url, site.feed_url, site.links_url, site.greenhouse_url)
    for address in (*lists, site.lever_url, site.ashby_url):
        text = browser.get(address).text
        assert all(url in text for url in urls)
        assert hidden not in text
    assert f"Sitemap: {site.sitemap_url}" in browser.get(site.url + "/robots.txt").text
    second = browser.get(site.lever_url, params={"skip": "1", "limit": "1"}).text
    assert [job["text"] for job in json.loads(second)] == ["Keeper 1"]


@pytest.mark.parametrize(
    ("answer_has", "request_has"),
    [("etag", "If-None-Match"), ("last-modified", "If-Modified-Since")],
)
def test_an_unchanged_page_is_not_sent_again(
    site: Site, browser: httpx.Client, answer_has: str, request_has: str
) -> None:
    url = site.page("/jobs/1", "Sluice keeper")
    mark = {request_has: browser.get(url).headers[answer_has]}
    assert browser.get(url, headers=mark).status_code == 304
    site.touch("/jobs/1")
    assert browser.get(url, headers=mark).status_code == 200


def test_marks_can_be_switched_off(site: Site, browser: httpx.Client) -> None:
    site.sends_etag = site.sends_last_modified = False
    headers = browser.get(site.page("/jobs/1", "Sluice keeper")).headers
    assert not {"etag", "last-modified"} & set(headers)


def test_troubles_come_in_turn_and_then_end(site: Site, browser: httpx.Client) -> None:
    url = site.page("/jobs/1", "Sluice keeper")
    site.trouble("/jobs/1", Status(429, retry_after=7), times=1)
    site.trouble("/jobs/1", Status(500), times=2)
    answers = [browser.get(url) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [429, 500, 500, 200]
    assert answers[0].headers["retry-after"] == "7"
    site.trouble(ANYWHERE, Status(503))
    assert browser.get(url).status_code == 503
    site.mend()
    assert browser.get(url).status_code == 200


def test_redirects_lead_elsewhere_or_nowhere(site: Site, browser: httpx.Client) -> None:
    url = site.page("/jobs/1", "Sluice keeper")
    site.trouble("/old", Redirect("/jobs/1"))
    site.trouble("/loop", RedirectLoop())
    assert browser.get(site.url + "/old", follow_redirects=True).url == url
    with pytest.raises(httpx.TooManyRedirects):
        browser.get(site.url + "/loop", follow_redirects=True)


@pytest.mark.parametrize("trouble", [Reset(), WrongLength(+10), EndlessHeaders()])
def test_some_answers_are_broken(site: Site, browser: httpx.Client, trouble: Reset) -> None:
    site.trouble("/jobs/1", trouble)
    with pytest.raises(httpx.TransportError):
        browser.get(site.page("/jobs/1", "Sluice keeper"))


@pytest.mark.parametrize("trouble", [Stall(), Stall(after_bytes=10), Drip(2), Slow(2)])
def test_some_answers_are_late(site: Site, trouble: Stall) -> None:
    site.trouble("/jobs/1", trouble)
    url = site.page("/jobs/1", "Sluice keeper")
    with pytest.raises(httpx.ReadTimeout):
        # Only the answer is to be late: connecting may take as long as the machine needs.
        httpx.get(url, timeout=httpx.Timeout(30, read=0.1), trust_env=False)
    wait_until(lambda: [one.is_over for one in site.requests("/jobs/1")] == [True])


def test_a_body_may_be_shorter_longer_or_more_than_it_seems(
    site: Site, browser: httpx.Client
) -> None:
    url = site.page("/jobs/1", "Sluice keeper")
    size = len(browser.get(url).content)
    for trouble in (WrongLength(-10), Empty(), GzipBomb(2 << 20), Endless(1 << 20)):
        site.trouble("/jobs/1", trouble, times=1)
    lengths = [len(httpx.get(url, trust_env=False).content) for _ in range(4)]
    assert lengths == [size - 10, 0, 2 << 20, 1 << 20]
    assert site.requests("/jobs/1")[-2].sent_bytes < 5_000


@dataclass(frozen=True)
class AllAtOnce:
    """Answers as the site would, when as many requests as the barrier waits for have come."""

    barrier: threading.Barrier

    def play(self, visit: Visit) -> None:
        self.barrier.wait()
        visit.send_answer()


def test_requests_are_recorded_with_how_many_came_at_once(
    site: Site, browser: httpx.Client
) -> None:
    urls = [site.page(f"/jobs/{number}", "Lock keeper") for number in range(3)]
    site.trouble(ANYWHERE, AllAtOnce(threading.Barrier(3, timeout=30)))
    begun = time.monotonic()
    run_together(3, lambda number: browser.get(urls[number]))
    first = site.requests("/jobs/1")[0]
    assert begun <= first.at <= time.monotonic()
    # What was sent is counted a moment after it has arrived.
    wait_until(lambda: first.is_over)
    assert first.headers["user-agent"].startswith("python-httpx")
    assert first.sent_bytes > 3_000
    assert site.most_at_once == 3
    site.forget_requests()
    assert site.requests() == []


@pytest.mark.full_suite
def test_a_site_leaves_nothing_behind_even_when_a_client_hangs_on() -> None:
    before = set(threading.enumerate())
    with httpx.Client(timeout=30, trust_env=False) as browser, running_site() as site:
        browser.get(site.page("/jobs/1", "Sluice keeper"))
        site.trouble("/jobs/2", Stall())
        with pytest.raises(httpx.ReadTimeout):
            browser.get(site.url + "/jobs/2", timeout=httpx.Timeout(30, read=0.05))
    assert set(threading.enumerate()) <= before
