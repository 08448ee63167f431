"""Pages over TLS: the host's name is sent and checked, although the address was resolved before."""

from pathlib import Path

import pytest

from penstock.crawl import http
from penstock.crawl.fetch import Fetcher
from penstock.errors import DocumentFault
from tests.simulator.certificate import server_context, write_certificate
from tests.together import run_together

from .conftest import MakeFetcher
from .scripted import ScriptedServer

pytestmark = pytest.mark.full_suite


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "site.pem"
    write_certificate(path, "site.test")
    return path


@pytest.fixture(autouse=True)
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every host is this machine, and the certificate is one of those that are believed."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setattr(http, "resolve_host", lambda _host, _port: ["127.0.0.1"])


@pytest.fixture
def secure_server(server: ScriptedServer, certificate: Path) -> ScriptedServer:
    context = server_context(certificate, "http/1.1")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def secure(url: str, host: str = "site.test") -> str:
    return url.replace("http://127.0.0.1", f"https://{host}")


def test_pages_come_over_tls(secure_server: ScriptedServer, fetcher: Fetcher) -> None:
    urls = [secure(secure_server.page(f"/{number}", f"page {number}")) for number in range(4)]
    contents = run_together(4, lambda number: fetcher.get(urls[number]).content)
    assert contents == [f"page {number}".encode() for number in range(4)]


def test_a_certificate_for_another_host_is_refused(
    secure_server: ScriptedServer, make_fetcher: MakeFetcher
) -> None:
    url = secure(secure_server.page("/a", "hi"), "other.test")
    with pytest.raises(DocumentFault, match="certificate"):
        make_fetcher(tries=1).get(url)
