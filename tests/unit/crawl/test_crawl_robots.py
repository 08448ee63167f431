import pytest

from penstock.crawl.fetch import Fetcher
from penstock.errors import DocumentFault, ErrorClass

from .scripted import Reply, ScriptedServer


def refusal(fetcher: Fetcher, url: str) -> DocumentFault:
    with pytest.raises(DocumentFault) as caught:
        fetcher.get(url)
    return caught.value


def test_a_disallowed_page_is_never_asked_for(server: ScriptedServer, fetcher: Fetcher) -> None:
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


def test_a_site_that_cannot_show_its_rules_is_closed_for_now(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    server.reply("/robots.txt", Reply(500))
    url = server.page("/a", "x")
    for _ in range(2):
        fault = refusal(fetcher, url)
        assert fault.kind is ErrorClass.UNAVAILABLE
        assert "closed to crawlers for now" in str(fault)
    assert len(server.requests_for("/robots.txt")) == 3
    assert server.requests_for("/a") == []


def test_a_site_that_asks_for_time_is_not_called_closed(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    server.reply("/robots.txt", Reply(429, headers={"Retry-After": "600"}))
    fault = refusal(fetcher, server.page("/a", "x"))
    assert (fault.kind, fault.retry_after_seconds) == (ErrorClass.RATE_LIMITED, 600)


def test_rules_are_asked_for_once(server: ScriptedServer, fetcher: Fetcher) -> None:
    for _ in range(3):
        fetcher.get(server.page("/a", "x"))
    assert len(server.requests_for("/robots.txt")) == 1


def test_rules_are_asked_for_again_when_they_are_too_old(
    server: ScriptedServer, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.crawl.robots._KEEP_SECONDS", 0.0)
    for _ in range(2):
        fetcher.get(server.page("/a", "x"))
    assert len(server.requests_for("/robots.txt")) == 2
