import socket
from collections.abc import Callable, Iterable
from typing import Any

import httpcore
import pytest

from penstock.crawl import http
from penstock.crawl.fetch import Fetcher
from penstock.errors import DocumentFault, ErrorClass

from .conftest import MakeFetcher
from .scripted import Reply, ScriptedServer

PUBLIC = "93.184.216.34"
Names = dict[str, list[str]]


def check_url(url: str, *, allow_private: bool) -> None:
    host = http.require_web_url(url).raw_host.decode()
    http.checked_addresses(host, 80, allow_private=allow_private)


def answer_names(monkeypatch: pytest.MonkeyPatch, names: Names) -> list[str]:
    """Resolve from a table, each look-up taking the next answer; tells what was looked up."""
    asked: list[str] = []

    def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        answers = names.get(host, [host])
        return [answers.pop(0) if len(answers) > 1 else answers[0]]

    monkeypatch.setattr(http, "resolve_host", resolve)
    return asked


def lead_public_to(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the public address be the scripted server; tells which addresses were connected to."""
    connected: list[str] = []
    connect: Callable[..., httpcore.NetworkStream] = httpcore.SyncBackend.connect_tcp

    def connect_tcp(self: httpcore.SyncBackend, host: str, _port: int, *rest: Any) -> Any:
        connected.append(host)
        assert host == PUBLIC
        return connect(self, "127.0.0.1", server.server_port, *rest)

    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect_tcp)
    return connected


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%lo",
        "fc00::1",
        "fec0::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:93.184.216.34",
        "::7f00:1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "2002:7f00:1::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:db8::1",
    ],
)
def test_addresses_that_are_not_public_are_recognised(address: str) -> None:
    assert not http.is_public(address)


@pytest.mark.parametrize("address", [PUBLIC, "8.8.8.8", "2606:4700::1111", "2a00:1450::200e"])
def test_public_addresses_are_recognised(address: str) -> None:
    assert http.is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
    ],
)
def test_every_spelling_of_loopback_is_refused(url: str) -> None:
    with pytest.raises(DocumentFault) as caught:
        check_url(url, allow_private=False)
    assert caught.value.kind is ErrorClass.FORBIDDEN


def test_a_refusal_names_host_address_and_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_names(monkeypatch, {"intranet.test": ["10.0.0.5"]})
    with pytest.raises(DocumentFault) as caught:
        check_url("https://intranet.test/x", allow_private=False)
    for word in ("intranet.test", "10.0.0.5", "PENSTOCK_ALLOW_PRIVATE_ADDRESSES"):
        assert word in str(caught.value)


def test_one_private_address_among_public_ones_refuses_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "resolve_host", lambda _host, _port: [PUBLIC, "10.0.0.5"])
    with pytest.raises(DocumentFault):
        check_url("http://mixed.test/", allow_private=False)


def test_private_addresses_can_be_allowed() -> None:
    check_url("http://127.0.0.1/", allow_private=True)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://x/", "http://", "x", "http://a b/"]
)
def test_what_is_not_http_is_refused(url: str) -> None:
    with pytest.raises(DocumentFault) as caught:
        check_url(url, allow_private=True)
    assert caught.value.kind is ErrorClass.FORBIDDEN


def test_an_unknown_host_is_unavailable(
    make_fetcher: MakeFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(DocumentFault) as caught:
        make_fetcher(allow_private=False, tries=1).get("http://nowhere.test/")
    assert caught.value.kind is ErrorClass.UNAVAILABLE
    assert "nowhere.test" in str(caught.value)


def test_a_host_name_with_an_overlong_label_is_unavailable(make_fetcher: MakeFetcher) -> None:
    with pytest.raises(DocumentFault):
        make_fetcher(allow_private=False, tries=1).get(f"http://{'a' * 70}.test/")


def test_a_fetcher_refuses_private_addresses_unless_allowed(
    server: ScriptedServer, make_fetcher: MakeFetcher
) -> None:
    with pytest.raises(DocumentFault) as caught:
        make_fetcher(allow_private=False).get(server.page("/a", "x"))
    assert caught.value.kind is ErrorClass.FORBIDDEN
    assert "PENSTOCK_ALLOW_PRIVATE_ADDRESSES" in str(caught.value)
    assert server.asked == []


@pytest.mark.parametrize("target", ["http://127.0.0.1:{port}/b", "http://intranet.test/b"])
def test_a_redirect_to_a_private_address_is_refused(
    server: ScriptedServer,
    make_fetcher: MakeFetcher,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
) -> None:
    answer_names(monkeypatch, {"site.test": [PUBLIC], "intranet.test": ["10.0.0.5"]})
    connected = lead_public_to(server, monkeypatch)
    location = target.format(port=server.server_port)
    server.reply("/a", Reply(302, headers={"Location": location}))
    with pytest.raises(DocumentFault) as caught:
        make_fetcher(allow_private=False).get("http://site.test/a")
    assert caught.value.kind is ErrorClass.FORBIDDEN
    assert set(connected) == {PUBLIC}
    assert server.requests_for("/b") == []


def test_the_connection_goes_to_the_address_that_was_checked(
    server: ScriptedServer, make_fetcher: MakeFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answer_names(monkeypatch, {"rebind.test": [PUBLIC, "127.0.0.1"]})
    connected = lead_public_to(server, monkeypatch)
    server.page("/a", "x")
    fetcher = make_fetcher(allow_private=False, tries=1)
    with pytest.raises(DocumentFault) as caught:
        fetcher.get("http://rebind.test/a")
    assert caught.value.kind is ErrorClass.FORBIDDEN
    assert asked == ["rebind.test", "rebind.test"]
    assert connected == [PUBLIC]
    assert [request.path for request in server.asked] == ["/robots.txt"]
    assert server.asked[0].headers["host"] == "rebind.test"


def test_tls_names_the_host_and_not_the_address(
    make_fetcher: MakeFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_names(monkeypatch, {"site.test": [PUBLIC]})
    seen: list[tuple[str, str | None]] = []

    class Stream(httpcore.NetworkStream):
        def __init__(self, address: str) -> None:
            self._address = address

        def start_tls(self, *_: Any, server_hostname: str | None = None, **__: Any) -> Any:
            seen.append((self._address, server_hostname))
            raise httpcore.ConnectError("enough")

        def close(self) -> None: ...

    def connect_tcp(_: Any, host: str, *__: Iterable[Any]) -> Stream:
        return Stream(host)

    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect_tcp)
    fetcher: Fetcher = make_fetcher(allow_private=False, tries=1)
    with pytest.raises(DocumentFault):
        fetcher.get("https://site.test/a")
    assert seen == [(PUBLIC, "site.test")]


def test_the_next_address_is_tried_when_one_does_not_answer(
    server: ScriptedServer, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "resolve_host", lambda _host, _port: ["127.0.0.9", "127.0.0.1"])
    server.page("/a", "x")
    assert fetcher.get(f"http://two.test:{server.server_port}/a").content == b"x"
