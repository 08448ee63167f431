import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.crawl import guard
from penstock.crawl.fetch import Fetcher
from penstock.errors import DocumentFault, ErrorClass
from tests.simulator.certificate import server_context, write_certificate
from tests.simulator.http2 import Answer, Http2Server, running_http2_server
from tests.together import run_together, wait_until

from .conftest import MakeFetcher
from .scripted import ScriptedServer

pytestmark = pytest.mark.full_suite

PAGE = Answer(b"<p>hi", headers=(("content-type", "text/html"), ("etag", '"v1"')))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "site.pem"
    write_certificate(path, "site.test")
    return path


@pytest.fixture(autouse=True)
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every host is this machine, and the certificate is one of those that are believed."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setattr(guard, "resolve_host", lambda _host, _port: ["127.0.0.1"])


@pytest.fixture
def h2_server(certificate: Path) -> Iterator[Http2Server]:
    with running_http2_server(certificate) as server:
        yield server


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that take turns so often that whatever can go wrong between two lines does."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def fault_of(fetcher: Fetcher, url: str) -> DocumentFault:
    with pytest.raises(DocumentFault) as caught:
        fetcher.get(url)
    return caught.value


def test_a_page_comes_over_http2(h2_server: Http2Server, fetcher: Fetcher) -> None:
    fetched = fetcher.get(h2_server.answer("/a", PAGE))
    assert (fetched.content, fetched.media_type, fetched.etag) == (b"<p>hi", "text/html", '"v1"')
    asked = h2_server.requests_for("/a")[0]
    assert asked.headers[":authority"] == f"site.test:{h2_server.port}"
    assert asked.headers["user-agent"].startswith("Penstock/")
    assert asked.headers["accept-encoding"] == "gzip, br"


def test_the_server_is_told_the_name_of_the_host(h2_server: Http2Server, fetcher: Fetcher) -> None:
    fetcher.get(h2_server.answer("/a", PAGE))
    assert h2_server.names == ["site.test"]


def test_a_certificate_for_another_host_is_refused(
    h2_server: Http2Server, make_fetcher: MakeFetcher
) -> None:
    url = h2_server.answer("/a", PAGE).replace("site.test", "other.test")
    fault = fault_of(make_fetcher(tries=1), url)
    assert fault.kind is ErrorClass.UNAVAILABLE
    assert "certificate" in str(fault)


def test_requests_at_the_same_time_share_a_connection(
    h2_server: Http2Server, fetcher: Fetcher
) -> None:
    fetcher.get(h2_server.answer("/first", PAGE))
    urls = [h2_server.answer(f"/{number}", Answer(b"%d" % number)) for number in range(4)]
    # No thread gets an answer before all of them have asked, on one connection.
    h2_server.gather = 4
    contents = run_together(4, lambda number: fetcher.get(urls[number]).content)
    assert contents == [b"0", b"1", b"2", b"3"]
    assert h2_server.connections == 1


@pytest.mark.usefixtures("hasty_threads")
def test_hundreds_of_answers_never_get_mixed_up(
    h2_server: Http2Server, make_fetcher: MakeFetcher
) -> None:
    bodies = [b"%d " % number * 5_000 for number in range(400)]
    urls = [h2_server.answer(f"/{number}", Answer(body)) for number, body in enumerate(bodies)]
    fetcher = make_fetcher(concurrency_per_host=8, tries=1)

    def get_every_eighth(first: int) -> bool:
        numbers = range(first, len(urls), 8)
        return all(fetcher.get(urls[number]).content == bodies[number] for number in numbers)

    assert all(run_together(8, get_every_eighth))
    assert h2_server.connections == 1


def test_a_server_that_speaks_only_http1_is_understood(
    server: ScriptedServer, fetcher: Fetcher, certificate: Path
) -> None:
    context = server_context(certificate, "http/1.1")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    paths = [server.page(f"/{number}", f"page {number}") for number in range(4)]
    urls = [path.replace("http://127.0.0.1", "https://site.test") for path in paths]
    contents = run_together(4, lambda number: fetcher.get(urls[number]).content)
    assert contents == [f"page {number}".encode() for number in range(4)]


@pytest.mark.parametrize("ending", ["goaway", "reset", "short"])
def test_an_answer_that_breaks_off_is_asked_for_again(
    h2_server: Http2Server, fetcher: Fetcher, ending: str
) -> None:
    url = h2_server.answer("/a", Answer(b"cut", ending=ending), Answer(b"whole"))
    assert fetcher.get(url).content == b"whole"


@pytest.mark.parametrize("ending", ["goaway", "reset", "short"])
def test_an_answer_that_always_breaks_off_is_a_failed_transfer(
    h2_server: Http2Server, fetcher: Fetcher, ending: str
) -> None:
    fault = fault_of(fetcher, h2_server.answer("/a", Answer(b"cut", ending=ending)))
    assert fault.kind is ErrorClass.UNAVAILABLE
    assert len(h2_server.requests_for("/a")) == 3


def test_a_connection_that_the_server_has_left_is_not_used_again(
    h2_server: Http2Server, make_fetcher: MakeFetcher
) -> None:
    fetcher = make_fetcher(tries=1)
    fetcher.get(h2_server.answer("/a", PAGE))
    h2_server.hang_up()
    assert fetcher.get(h2_server.answer("/b", PAGE)).content == b"<p>hi"
    assert h2_server.connections == 2


def test_no_more_answers_are_asked_for_at_once_than_the_server_allows(
    h2_server: Http2Server, fetcher: Fetcher
) -> None:
    h2_server.max_streams = 1
    urls = [h2_server.answer(f"/{number}", PAGE) for number in range(4)]
    fetcher.get(urls[0])
    assert run_together(4, lambda number: fetcher.get(urls[number]).content) == [b"<p>hi"] * 4


def test_an_endless_body_stops_at_the_cap_and_its_neighbours_go_on(
    h2_server: Http2Server, make_fetcher: MakeFetcher
) -> None:
    fetcher = make_fetcher(max_bytes=1 << 20)
    fault = fault_of(fetcher, h2_server.answer("/endless", Answer(ending="endless")))
    assert fault.kind is ErrorClass.TOO_LARGE
    asked = h2_server.requests_for("/endless")[0]
    wait_until(lambda: asked.was_reset)
    assert asked.sent_bytes < 8 << 20
    for _ in range(30):
        fault_of(fetcher, h2_server.answer("/endless", Answer(ending="endless")))
    assert fetcher.get(h2_server.answer("/a", PAGE)).content == b"<p>hi"
    assert h2_server.connections == 1


def test_a_stalled_answer_times_out_alone(
    h2_server: Http2Server, make_fetcher: MakeFetcher
) -> None:
    fetcher = make_fetcher(timeout_seconds=1.0, tries=1)
    fetcher.get(h2_server.answer("/a", PAGE))
    stalled = h2_server.answer("/stalled", Answer(ending="stall"))
    faults: list[DocumentFault] = []
    waiting = threading.Thread(target=lambda: faults.append(fault_of(fetcher, stalled)))
    waiting.start()
    # Answers to others come all the while on the same connection; they are no answer to this one.
    while waiting.is_alive():
        assert fetcher.get(h2_server.answer("/a", PAGE)).content == b"<p>hi"
    waiting.join()
    assert [fault.kind for fault in faults] == [ErrorClass.TIMEOUT]
    assert {asked.connection for asked in h2_server.requests_for("/a")[:10]} == {1}


def test_a_connection_on_which_an_answer_was_late_gets_no_more_requests(
    h2_server: Http2Server, make_fetcher: MakeFetcher
) -> None:
    fetcher = make_fetcher(timeout_seconds=1, tries=1)
    fault_of(fetcher, h2_server.answer("/stalled", Answer(ending="stall")))
    fetcher.get(h2_server.answer("/a", PAGE))
    assert [asked.connection for asked in h2_server.asked] == [1, 1, 2]


def test_headers_without_end_are_a_failed_transfer(
    h2_server: Http2Server, fetcher: Fetcher
) -> None:
    endless = tuple((f"x-{number}", "y" * 1000) for number in range(100))
    fault = fault_of(fetcher, h2_server.answer("/a", Answer(b"x", headers=endless)))
    assert fault.kind is ErrorClass.UNAVAILABLE
