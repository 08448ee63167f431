import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from penstock.app import App
from penstock.crawl import http
from penstock.crawl.fetch import Fetched, Fetcher, Marks, NotModified
from penstock.crawl.http import HttpFault, is_worth_retrying
from penstock.crawl.listing import Listed
from penstock.crawl.politeness import HostLimiter
from penstock.errors import ConfigurationError, DocumentFault, ErrorClass
from penstock.retry import parse_retry_after
from penstock.settings import Settings
from penstock.store.database import Database
from tests.simulator import Drip, Empty, Endless, EndlessHeaders, Redirect, Site, WrongLength
from tests.together import wait_until

from .conftest import MakeFetcher
from .scripted import Reply, ScriptedServer, free_port

pytestmark = pytest.mark.full_suite


def listed(url: str) -> Listed:
    return Listed(url, url)


def fault_of(fetcher: Fetcher, url: str) -> DocumentFault:
    with pytest.raises(DocumentFault) as caught:
        fetcher.fetch(listed(url))
    return caught.value


def test_a_page_comes_with_its_type_and_marks(server: ScriptedServer, fetcher: Fetcher) -> None:
    headers = {
        "Content-Type": "text/html; charset=utf-8",
        "ETag": '"v1"',
        "Last-Modified": "Mon, 06 Jan 2025 10:00:00 GMT",
    }
    url = server.reply("/a", Reply(body=b"<p>hi", headers=headers))
    assert fetcher.fetch(listed(url)) == Fetched(
        b"<p>hi", "text/html; charset=utf-8", '"v1"', "Mon, 06 Jan 2025 10:00:00 GMT", url
    )


@pytest.mark.parametrize("contact", [None, "", " "])
def test_requests_carry_the_user_agent(
    server: ScriptedServer, make_fetcher: MakeFetcher, contact: str | None
) -> None:
    make_fetcher(contact=contact).get(server.page("/a", "x"))
    agent = server.asked[-1].headers["user-agent"]
    assert agent == "Penstock/0.1.0 (+https://github.com/penstock/penstock)"


def test_the_user_agent_has_the_contact_of_the_settings(
    server: ScriptedServer, tmp_path: Path
) -> None:
    settings = Settings(
        home=tmp_path, crawl_contact="crawler@example.org", allow_private_addresses=True
    )
    with App(settings, Database(f"sqlite:///{tmp_path / 'penstock.db'}")) as app:
        app.fetcher.get(server.page("/a", "x"))
    assert server.asked[-1].headers["user-agent"] == "Penstock/0.1.0 (+crawler@example.org)"


@pytest.mark.parametrize("contact", ["me\r\nX-Evil: 1", "me\x00", "jörg@example.org"])
def test_a_contact_that_fits_no_header_is_refused(contact: str) -> None:
    with pytest.raises(ConfigurationError, match="PENSTOCK_CRAWL_CONTACT"):
        Fetcher(contact=contact)


def test_an_unchanged_page_is_not_sent_again(server: ScriptedServer, fetcher: Fetcher) -> None:
    url = server.reply("/a", Reply(304))
    marks = Marks(etag='"v1"', last_modified="Mon, 06 Jan 2025 10:00:00 GMT")
    assert fetcher.fetch(listed(url), marks) == NotModified()
    sent = server.asked[-1].headers
    assert sent["if-none-match"] == '"v1"'
    assert sent["if-modified-since"] == "Mon, 06 Jan 2025 10:00:00 GMT"


def test_not_modified_without_marks_is_a_fault(server: ScriptedServer, fetcher: Fetcher) -> None:
    assert fault_of(fetcher, server.reply("/a", Reply(304))).kind is ErrorClass.UNAVAILABLE


def test_a_mark_that_fits_no_header_is_not_kept(server: ScriptedServer, fetcher: Fetcher) -> None:
    url = server.reply("/a", Reply(headers={"ETag": '"é"'}))
    assert fetcher.get(url).etag is None


def test_redirects_are_followed_to_the_final_url(server: ScriptedServer, fetcher: Fetcher) -> None:
    start = server.reply("/a", Reply(301, headers={"Location": "/b/../c"}))
    end = server.page("/c", "there")
    fetched = fetcher.get(start)
    assert (fetched.content, fetched.final_url) == (b"there", end)


def test_a_password_in_a_redirect_is_neither_sent_nor_shown(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    location = server.url.replace("//", "//me:hunter2@") + "/b"
    fault = fault_of(fetcher, server.reply("/a", Reply(302, headers={"Location": location})))
    assert "hunter2" not in str(fault)
    assert "authorization" not in server.requests_for("/b")[0].headers


def test_a_redirect_loop_ends(server: ScriptedServer, fetcher: Fetcher) -> None:
    fault = fault_of(fetcher, server.reply("/a", Reply(302, headers={"Location": "/a"})))
    assert "more than 5 redirects" in str(fault)
    assert len(server.requests_for("/a")) == 6


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/", "http://[bad"])
def test_a_redirect_away_from_http_is_refused(
    server: ScriptedServer, fetcher: Fetcher, location: str
) -> None:
    fault = fault_of(fetcher, server.reply("/a", Reply(302, headers={"Location": location})))
    assert fault.kind is ErrorClass.FORBIDDEN


def test_a_declared_size_over_the_cap_is_refused(
    server: ScriptedServer, make_fetcher: MakeFetcher
) -> None:
    fault = fault_of(make_fetcher(max_bytes=10), server.page("/a", "x" * 11))
    assert fault.kind is ErrorClass.TOO_LARGE
    assert "11 bytes" in str(fault)
    assert "PENSTOCK_MAX_DOCUMENT_BYTES" in str(fault)


def test_a_body_of_undeclared_size_stops_at_the_cap(
    server: ScriptedServer, make_fetcher: MakeFetcher
) -> None:
    url = server.reply("/a", Reply(body=b"x" * 200_000, length=-1))
    assert fault_of(make_fetcher(max_bytes=1000), url).kind is ErrorClass.TOO_LARGE


def test_a_gigabyte_without_a_length_stops_at_the_cap_and_is_not_read_on(
    site: Site, make_fetcher: MakeFetcher
) -> None:
    site.trouble("/jobs/1", Endless())
    begun = time.monotonic()
    fault = fault_of(make_fetcher(max_bytes=1 << 20), site.page("/jobs/1", "Sluice keeper"))
    assert fault.kind is ErrorClass.TOO_LARGE
    assert time.monotonic() - begun < 10
    request = site.requests("/jobs/1")[0]
    wait_until(lambda: request.is_over)
    assert request.sent_bytes < 20 << 20


def test_headers_without_end_are_a_failed_transfer(site: Site, make_fetcher: MakeFetcher) -> None:
    site.trouble("/jobs/1", EndlessHeaders())
    fault = fault_of(make_fetcher(tries=1), site.page("/jobs/1", "Sluice keeper"))
    assert fault.kind is ErrorClass.UNAVAILABLE
    wait_until(lambda: site.requests("/jobs/1")[0].is_over)


@pytest.mark.parametrize(
    "surplus", [b"garbage", b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"]
)
def test_a_body_longer_than_declared_does_not_reach_the_next_response(
    site: Site, make_fetcher: MakeFetcher, surplus: bytes
) -> None:
    liar, honest = site.file("/a", b"page" + surplus), site.page("/jobs/1", "Sluice keeper")
    site.trouble("/a", WrongLength(-len(surplus)))
    fetcher = make_fetcher(tries=1)
    assert fetcher.get(liar).content == b"page"
    assert b"Sluice keeper" in fetcher.get(honest).content


def test_an_empty_page_is_retried(site: Site, fetcher: Fetcher) -> None:
    url = site.page("/jobs/1", "Sluice keeper")
    site.trouble("/jobs/1", Empty(), times=2)
    assert b"Sluice keeper" in fetcher.get(url).content
    site.trouble("/jobs/1", Empty())
    fault = fault_of(fetcher, url)
    assert fault.kind is ErrorClass.UNAVAILABLE
    assert "empty page" in str(fault)


def test_a_body_exactly_at_the_cap_is_accepted(
    server: ScriptedServer, make_fetcher: MakeFetcher
) -> None:
    url = server.page("/a", "x" * 10)
    assert make_fetcher(max_bytes=10).get(url).content == b"x" * 10


def test_a_body_shorter_than_declared_is_a_failed_transfer(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    url = server.reply("/a", Reply(body=b"cut", length=100))
    fault = fault_of(fetcher, url)
    assert fault.kind is ErrorClass.UNAVAILABLE
    assert len(server.requests_for("/a")) == 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, ErrorClass.FORBIDDEN),
        (403, ErrorClass.FORBIDDEN),
        (404, ErrorClass.UNAVAILABLE),
        (410, ErrorClass.UNAVAILABLE),
        (418, ErrorClass.UNAVAILABLE),
    ],
)
def test_a_permanent_status_is_not_retried(
    server: ScriptedServer, fetcher: Fetcher, status: int, kind: ErrorClass
) -> None:
    fault = fault_of(fetcher, server.reply("/a", Reply(status)))
    assert fault.kind is kind
    assert f"HTTP {status}" in str(fault)
    assert len(server.requests_for("/a")) == 1


def test_retry_after_is_waited_for_and_then_the_page_comes(
    server: ScriptedServer, fetcher: Fetcher, naps: list[float]
) -> None:
    url = server.reply("/a", Reply(429, headers={"Retry-After": "7"}), Reply(body=b"ok"))
    assert fetcher.get(url).content == b"ok"
    assert naps == [pytest.approx(7, abs=0.5)]


def test_a_host_that_asks_for_time_gets_it_from_every_thread(
    server: ScriptedServer, make_fetcher: MakeFetcher, naps: list[float]
) -> None:
    fetcher = make_fetcher(tries=1)
    fault_of(fetcher, server.reply("/busy", Reply(503, headers={"Retry-After": "9"})))
    fetcher.get(server.page("/other", "x"))
    assert naps == [pytest.approx(9, abs=0.5)]


def test_a_long_retry_after_is_not_waited_for(
    server: ScriptedServer, fetcher: Fetcher, naps: list[float]
) -> None:
    fault = fault_of(fetcher, server.reply("/a", Reply(429, headers={"Retry-After": "3600"})))
    assert (fault.kind, fault.retry_after_seconds) == (ErrorClass.RATE_LIMITED, 3600)
    assert len(server.requests_for("/a")) == 1
    assert naps == []


def test_an_absurd_retry_after_is_a_day(server: ScriptedServer, fetcher: Fetcher) -> None:
    url = server.reply("/a", Reply(429, headers={"Retry-After": "9" * 400}))
    assert fault_of(fetcher, url).retry_after_seconds == 24 * 3600


def test_a_server_error_is_tried_three_times_with_growing_waits(
    server: ScriptedServer, fetcher: Fetcher, naps: list[float]
) -> None:
    fault = fault_of(fetcher, server.reply("/a", Reply(500)))
    assert fault.kind is ErrorClass.UNAVAILABLE
    assert "HTTP 500" in str(fault)
    assert len(server.requests_for("/a")) == 3
    assert 0.5 <= naps[0] <= 0.75
    assert 1.0 <= naps[1] <= 1.5


def test_a_temporary_server_error_is_retried(server: ScriptedServer, fetcher: Fetcher) -> None:
    url = server.reply("/a", Reply(502), Reply(body=b"ok"))
    assert fetcher.get(url).content == b"ok"


def test_a_stalling_server_is_a_timeout(server: ScriptedServer, make_fetcher: MakeFetcher) -> None:
    url = server.reply("/a", Reply(length=10, body=b"x", stall=True))
    fault = fault_of(make_fetcher(timeout_seconds=1.0, tries=1), url)
    assert fault.kind is ErrorClass.TIMEOUT
    assert url in str(fault)


def test_a_body_that_only_drips_is_a_timeout(
    site: Site, make_fetcher: MakeFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.crawl.http.RESPONSE_TIMEOUTS", 2)
    url = site.page("/jobs/1", "Sluice keeper")
    site.trouble("/jobs/1", Drip(0.05))
    fault = fault_of(make_fetcher(timeout_seconds=1.0, tries=1), url)
    assert fault.kind is ErrorClass.TIMEOUT
    assert "not all of it came within 2 s" in str(fault)


def test_a_host_without_a_server_is_unavailable(fetcher: Fetcher) -> None:
    fault = fault_of(fetcher, f"http://127.0.0.1:{free_port()}/a")
    assert fault.kind is ErrorClass.UNAVAILABLE


def test_cookies_are_not_kept(server: ScriptedServer, fetcher: Fetcher) -> None:
    fetcher.get(server.reply("/a", Reply(headers={"Set-Cookie": "who=me"})))
    fetcher.get(server.page("/b", "x"))
    assert "cookie" not in server.asked[-1].headers


def test_requests_to_one_host_are_delayed(
    server: ScriptedServer, make_fetcher: MakeFetcher, naps: list[float]
) -> None:
    fetcher = make_fetcher(delay_seconds=500.0)
    fetcher.get(server.page("/a", "x"))
    assert len(server.asked) == 2
    # What has passed since the request before is not waited for again.
    assert naps == [pytest.approx(500, abs=50)]


def test_one_connection_serves_a_whole_crawl(site: Site, fetcher: Fetcher) -> None:
    url = site.page("/jobs/1", "Sluice keeper")
    site.trouble("/old", Redirect("/jobs/1"))
    fetched = fetcher.get(site.url + "/old")
    assert fetcher.fetch(listed(url), Marks(etag=fetched.etag)) == NotModified()
    fault_of(fetcher, site.url + "/missing")
    fetcher.get(url)
    assert len(site.requests()) == 6
    assert len({request.connection for request in site.requests()}) == 1


def test_idle_connections_do_not_pile_up(
    site: Site, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "resolve_host", lambda _host, _port: ["127.0.0.1"])
    url = site.page("/jobs/1", "Sluice keeper")
    for number in range(40):
        fetcher.get(url.replace("127.0.0.1", f"host{number}.test"))
    assert len({request.connection for request in site.requests()}) == 40
    wait_until(lambda: site.open_connections <= 21)


def test_threads_share_a_fetcher(server: ScriptedServer, make_fetcher: MakeFetcher) -> None:
    urls = [server.page(f"/{number}", f"page {number}") for number in range(40)]
    fetcher = make_fetcher(concurrency_per_host=3)
    with ThreadPoolExecutor(8) as pool:
        contents = [fetched.content for fetched in pool.map(fetcher.get, urls)]
    assert contents == [f"page {number}".encode() for number in range(40)]
    assert len(server.requests_for("/robots.txt")) == 1


def test_a_host_has_no_more_requests_at_once_than_allowed() -> None:
    limiter = HostLimiter(0.0, 1, lambda _: None)
    entered = threading.Event()

    def visit() -> None:
        with limiter.slot("a.test"):
            entered.set()

    with limiter.slot("a.test"):
        visitor = threading.Thread(target=visit)
        visitor.start()
        with limiter.slot("b.test"):
            assert not entered.wait(0.05)
    visitor.join(60)
    assert entered.is_set()


def test_a_delayed_host_does_not_delay_other_hosts() -> None:
    asleep, awake = threading.Event(), threading.Event()

    def sleep(_seconds: float) -> None:
        asleep.set()
        awake.wait(60)

    limiter = HostLimiter(0.0, 1, sleep)
    limiter.set_delay("slow.test", 5)

    def visit_twice() -> None:
        for _ in range(2):
            with limiter.slot("slow.test"):
                pass

    visitor = threading.Thread(target=visit_twice)
    visitor.start()
    assert asleep.wait(60)
    asleep.clear()
    for _ in range(3):
        with limiter.slot("quick.test"):
            assert not asleep.is_set()
    awake.set()
    visitor.join()


def test_a_pause_of_a_host_also_holds_for_waiting_threads() -> None:
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 1:
            limiter.pause("a.test", 900)

    limiter = HostLimiter(200.0, 1, sleep)
    for _ in range(2):
        with limiter.slot("a.test"):
            pass
    assert naps == [pytest.approx(200, abs=50), pytest.approx(900, abs=50)]


def test_retry_after_may_be_a_number_or_a_date() -> None:
    def parse(value: str) -> float | None:
        return parse_retry_after({"retry-after": value})

    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert parse("120") == 120
    assert parse(soon) == pytest.approx(60, abs=5)
    assert parse("Mon, 06 Jan 2020 10:00:00 GMT") == 0
    assert [parse(value) for value in ("", "soon", "-5", "²")] == [None] * 4
    assert parse_retry_after({}) is None


@pytest.mark.parametrize(
    ("status", "worth"), [(None, True), (429, True), (500, True), (503, True), (404, False)]
)
def test_only_temporary_faults_are_retried(status: int | None, worth: bool) -> None:
    fault = HttpFault(ErrorClass.UNAVAILABLE, "x", status=status)
    assert is_worth_retrying(fault) is worth


def test_a_plain_fault_is_not_worth_a_retry() -> None:
    assert not is_worth_retrying(DocumentFault(ErrorClass.UNAVAILABLE, "x"))
