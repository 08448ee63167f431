import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import groq
import httpx
import pytest
from groq import Groq

from penstock.testing import Behaviour, GroqServer, Page, Reply, drop, hang, server_error
from tests.together import run_together, wait_until

from .conftest import Ask, MakeClient, ask_with, content_of

pytestmark = pytest.mark.full_suite


def connect(server: GroqServer) -> socket.socket:
    address = httpx.URL(server.base_url)
    return socket.create_connection((address.host, address.port or 0), timeout=20)


def raw_request(text: str, *headers: str) -> bytes:
    body = f'{{"model": "m", "messages": [{{"role": "user", "content": "{text}"}}]}}'.encode()
    lines = ["POST /v1/chat/completions HTTP/1.1", "host: x", *headers]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


def read_to_end(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize("behaviour", [Reply(), server_error()])
def test_latency_comes_before_the_answer(
    server: GroqServer, client: Groq, behaviour: Behaviour
) -> None:
    server.script("small", [behaviour.after(30)])
    with pytest.raises(groq.APITimeoutError):
        ask_with(client, timeout=0.2)


@pytest.mark.parametrize(
    "behaviour",
    [drop(), drop().after(0.05), Reply().dropped_midway(), Reply().dropped_midway().dribbled(0.05)],
)
def test_a_lost_connection_is_a_connection_error(
    server: GroqServer, ask: Ask, behaviour: Behaviour
) -> None:
    server.script("small", [behaviour])
    with pytest.raises(groq.APIConnectionError) as caught:
        ask()
    assert not isinstance(caught.value, groq.APITimeoutError)
    assert ask().choices


def test_a_dropped_request_is_kept_without_a_status(server: GroqServer, ask: Ask) -> None:
    server.script("small", [drop(), Reply().dropped_midway()])
    for _ in range(2):
        with pytest.raises(groq.APIConnectionError):
            ask()
    assert [request.status for request in server.requests] == [None, 200]


def test_a_hanging_request_ends_with_the_client_s_timeout(server: GroqServer, client: Groq) -> None:
    server.script("small", [hang()])
    with pytest.raises(groq.APITimeoutError):
        # Only for the answer: one that times out before it has asked leaves the script as it is.
        ask_with(client, timeout=httpx.Timeout(30, read=0.2))
    assert ask_with(client).choices
    assert server.peak_concurrency <= 2


def test_a_dribbled_body_arrives_whole(server: GroqServer, ask: Ask) -> None:
    server.script("small", [Reply("x" * 500).dribbled(0.1)])
    began = time.monotonic()
    assert content_of(ask()) == "x" * 500
    assert time.monotonic() - began >= 0.1


def test_a_dribbled_body_outlasts_a_timeout_between_bytes(server: GroqServer, client: Groq) -> None:
    server.script("small", [Reply().dribbled(1.2)])
    assert ask_with(client, timeout=httpx.Timeout(1.0)).choices


def test_half_an_envelope_is_no_json(server: GroqServer, ask: Ask) -> None:
    server.script("small", [Reply().truncated()])
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        ask()


def test_what_is_neither_called_json_nor_is_json_comes_out_of_the_client_as_text(
    server: GroqServer, ask: Ask
) -> None:
    server.script(
        "small", [Reply("x").labelled("text/plain"), Page(200, b"<p>", media_type="text/html")]
    )
    assert content_of(ask()) == "x"
    assert str(ask()) == "<p>"


def test_sixteen_clients_are_served_at_once(server: GroqServer, make_client: MakeClient) -> None:
    server.always(None, Reply("x").after(0.5))
    client = make_client(server)
    client.models.list()
    began = time.monotonic()
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: content_of(ask_with(client)), range(64)))
    # One after the other they would take 32 seconds.
    assert time.monotonic() - began < 30
    assert answers == ["x"] * 64
    assert server.count(status=200) == 64
    assert 8 <= server.peak_concurrency <= 16


def test_hundreds_of_connections_wait_side_by_side(server: GroqServer) -> None:
    server.always(None, Reply("x").after(2))
    connections = [connect(server) for _ in range(300)]
    try:
        for connection in connections:
            connection.sendall(raw_request("hello", "connection: close"))
        assert all(read_to_end(each).startswith(b"HTTP/1.1 200") for each in connections)
    finally:
        for connection in connections:
            connection.close()
    assert server.peak_concurrency > 100


def test_requests_of_one_connection_are_answered_in_order(server: GroqServer) -> None:
    server.script("m", [Reply("one").after(0.05), Reply("two"), Reply("three")])
    with closing(connect(server)) as connection:
        connection.sendall(raw_request("a") * 2 + raw_request("b", "connection: close"))
        answer = read_to_end(connection)
    places = [answer.index(word) for word in (b'"one"', b'"two"', b'"three"')]
    assert places == sorted(places)
    assert server.count(status=200) == 3


def test_a_request_may_arrive_byte_by_byte(server: GroqServer) -> None:
    with closing(connect(server)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in raw_request("Pumps", "connection: close"):
            connection.sendall(bytes([byte]))
        assert b"This is about Pumps." in read_to_end(connection)


def test_a_client_that_expects_100_continue_gets_it(server: GroqServer) -> None:
    head, _, body = raw_request("a", "expect: 100-continue", "connection: close").partition(
        b"\r\n\r\n"
    )
    with closing(connect(server)) as connection:
        connection.sendall(head + b"\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert read_to_end(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "nonsense",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\ncontent-length: many\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"x" * 70_000,
    ],
)
def test_a_malformed_request_is_refused_and_the_connection_closed(
    server: GroqServer, nonsense: bytes
) -> None:
    with closing(connect(server)) as connection:
        connection.sendall(nonsense)
        assert read_to_end(connection).startswith(b"HTTP/1.1 400 ")


def test_close_ends_a_hanging_request_at_once(
    server: GroqServer, client: Groq, caplog: pytest.LogCaptureFixture
) -> None:
    server.always(None, hang())
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(ask_with, client) for _ in range(4)]
        wait_until(lambda: server.count() == 4)
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < 10
        for each in waiting:
            assert isinstance(each.exception(timeout=30), groq.APIConnectionError)
    assert not caplog.records
    assert "penstock-groq-server" not in {thread.name for thread in threading.enumerate()}


def test_a_closed_server_can_start_again_at_the_same_address(make_client: MakeClient) -> None:
    with GroqServer("x") as server:
        address = server.base_url
        client = make_client(server)
        assert content_of(ask_with(client)) == "x"
    with pytest.raises(groq.APIConnectionError):
        ask_with(client)
    with server:
        assert server.base_url == address
        assert content_of(ask_with(client)) == "x"


def test_scripts_and_records_may_be_used_from_many_threads(
    server: GroqServer, make_client: MakeClient
) -> None:
    client = make_client(server)

    def use(number: int) -> str | None:
        server.script(f"m{number}", [str(number)])
        return content_of(ask_with(client, model=f"m{number}"))

    assert run_together(8, use) == [str(number) for number in range(8)]
    assert server.count(status=200) == 8
