import logging

import pytest

from penstock.crawl.fetch import Fetcher
from penstock.errors import DocumentFault, ErrorClass

from .conftest import MakeFetcher
from .scripted import Reply, ScriptedServer

pytestmark = pytest.mark.full_suite


def refusal(fetcher: Fetcher, url: str) -> DocumentFault:
    with pytest.raises(DocumentFault) as caught:
        fetcher.get(url)
    return caught.value


def test_a_disallowed_page_is_not_requested(server: ScriptedServer, fetcher: Fetcher) -> None:
    server.page("/robots.txt", "User-agent: penstock\nDisallow: /private", "text/plain")
    fault = refusal(fetcher, server.page("/private/a", "x"))
    assert fault.kind is ErrorClass.FORBIDDEN
    assert "robots.txt" in str(fault)
    assert server.requests_for("/private/a") == []


def test_rules_for_others_do_not_bind_us(server: ScriptedServer, fetcher: Fetcher) -> None:
    server.page("/robots.txt", "User-agent: otherbot\nDisallow: /", "text/plain")
    assert fetcher.get(server.page("/a", "x")).content == b"x"


def test_a_redirect_into_a_disallowed_page_is_refused(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    server.page("/robots.txt", "User-agent: *\nDisallow: /private", "text/plain")
    server.page("/private", "x")
    start = server.reply("/a", Reply(302, headers={"Location": "/private"}))
    assert refusal(fetcher, start).kind is ErrorClass.FORBIDDEN
    assert server.requests_for("/private") == []


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_site_without_rules_allows_everything(
    server: ScriptedServer, fetcher: Fetcher, status: int
) -> None:
    server.reply("/robots.txt", Reply(status))
    assert fetcher.get(server.page("/a", "x")).content == b"x"


def test_a_site_whose_robots_txt_fails_is_not_crawled_for_now(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    server.reply("/robots.txt", Reply(500))
    url = server.page("/a", "x")
    for _ in range(2):
        fault = refusal(fetcher, url)
        assert fault.kind is ErrorClass.UNAVAILABLE
        assert "not crawled for now" in str(fault)
    assert len(server.requests_for("/robots.txt")) == 3
    assert server.requests_for("/a") == []


def test_a_rate_limit_on_robots_txt_is_passed_on(server: ScriptedServer, fetcher: Fetcher) -> None:
    server.reply("/robots.txt", Reply(429, headers={"Retry-After": "600"}))
    fault = refusal(fetcher, server.page("/a", "x"))
    assert (fault.kind, fault.retry_after_seconds) == (ErrorClass.RATE_LIMITED, 600)


def test_robots_txt_is_fetched_once(server: ScriptedServer, fetcher: Fetcher) -> None:
    for _ in range(3):
        fetcher.get(server.page("/a", "x"))
    assert len(server.requests_for("/robots.txt")) == 1


def test_robots_txt_is_fetched_again_when_it_is_too_old(
    server: ScriptedServer, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.crawl.politeness._KEEP_SECONDS", 0.0)
    for _ in range(2):
        fetcher.get(server.page("/a", "x"))
    assert len(server.requests_for("/robots.txt")) == 2


@pytest.mark.parametrize(
    ("wish", "setting", "kept"), [("7", 0.0, 7), ("2.5", 0.5, 2.5), ("2", 5.0, 5), ("60", 0.0, 60)]
)
def test_a_site_gets_the_distance_it_wishes_or_a_larger_one(
    server: ScriptedServer,
    make_fetcher: MakeFetcher,
    naps: list[float],
    wish: str,
    setting: float,
    kept: float,
) -> None:
    server.page("/robots.txt", f"User-agent: *\nCrawl-delay: {wish}", "text/plain")
    fetcher = make_fetcher(delay_seconds=setting)
    for path in ("/a", "/b"):
        fetcher.get(server.page(path, "x"))
    # Nobody really sleeps here, so the second wait has the first one in it.
    assert naps == [pytest.approx(kept, abs=0.5), pytest.approx(2 * kept, abs=0.5)]


@pytest.mark.parametrize("rules", ["User-agent: otherbot\nCrawl-delay: 9", "Crawl-delay: soon"])
def test_a_wish_that_is_not_for_us_changes_nothing(
    server: ScriptedServer, fetcher: Fetcher, naps: list[float], rules: str
) -> None:
    server.page("/robots.txt", rules, "text/plain")
    for path in ("/a", "/b"):
        fetcher.get(server.page(path, "x"))
    assert naps == []


def test_a_wish_for_more_than_a_minute_gets_a_minute_and_one_warning(
    server: ScriptedServer,
    fetcher: Fetcher,
    naps: list[float],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("penstock.crawl.politeness._KEEP_SECONDS", 0.0)
    server.page("/robots.txt", "User-agent: *\nCrawl-delay: 3600", "text/plain")
    with caplog.at_level(logging.WARNING):
        for path in ("/a", "/b"):
            fetcher.get(server.page(path, "x"))
    assert naps[0] == pytest.approx(60, abs=0.5)
    assert len(server.requests_for("/robots.txt")) == 2
    assert [record.getMessage() for record in caplog.records] == [
        "robots.txt of 127.0.0.1 wants 3600 s between two requests; it gets 60 s"
    ]
