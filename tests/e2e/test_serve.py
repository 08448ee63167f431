"""The API and its workers as processes of their own, spoken to over real HTTP."""

import json
import re
import select
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.app import open_app
from penstock.events import Event, record
from penstock.runs.lifecycle import abort_run, open_run
from penstock.runs.run import SourceSpec
from penstock.settings import load_settings
from tests.contract.api.tokens import SECRET, as_tenant
from tests.e2e.commands import CommandLine
from tests.preloaded import Started
from tests.together import wait_until

QUICK = {"EMBEDDING_BACKEND": "hash", "EXTRACTION_HEALTHCHECK_PORT": "0"}
TEXT = (
    "Ada Park has 8 years of experience as a Data Engineer and looks after sluice gates with "
    "Python, PostgreSQL and Kubernetes. She works in hydropower."
)


@dataclass
class Running:
    """A command under way; what it says is kept, so that it never waits for a reader."""

    process: Started
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def wait_for(self, pattern: str) -> str:
        """The first group of the first line like this."""

        def found() -> "re.Match[str] | None":
            assert self.process.poll() is None, "\n".join(self.said)
            return next((hit for line in [*self.said] if (hit := re.search(pattern, line))), None)

        wait_until(lambda: found() is not None, seconds=60)
        hit = found()
        assert hit is not None
        return hit.group(1)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=60)
        for reader in self._readers:
            reader.join(timeout=10)
        self.process.close()
        return code

    def _read(self, stream: Any) -> None:
        for line in stream:
            self.said.append(line.rstrip())


@contextmanager
def running(command: CommandLine, *arguments: str) -> Iterator[Running]:
    started = Running(command.start(*arguments))
    try:
        yield started
    finally:
        started.stop()


@contextmanager
def serving(command: CommandLine, *arguments: str) -> Iterator[httpx.Client]:
    """A client of an API that serves."""
    with running(command, "serve", *(arguments or ("--port", "0"))) as server:
        address = server.wait_for(r"running on (http://\S+)")
        with httpx.Client(base_url=address, timeout=60) as client:
            yield client


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def command(home: Path) -> CommandLine:
    return CommandLine(home, settings=QUICK)


def test_documents_travel_from_requests_over_workers_to_search(command: CommandLine) -> None:
    with serving(command) as http, running(command, "worker") as worker:
        worker.wait_for("(working on)")
        added = http.post(
            "/nodes",
            json={"props": {"text": TEXT}, "profile": "resume", "extract_before_embed": True},
        ).json()
        files = [("files", ("cv.txt", TEXT.encode())), ("files", ("cv.md", b"# Mills\n\nFlour."))]
        uploaded = http.post("/upload", files=files).json()["results"]
        ids = [added["id"], *[one["id"] for one in uploaded]]

        def is_ready(node_id: str) -> bool:
            return bool(http.get(f"/nodes/{node_id}").json()["embedding_status"] == "ready")

        wait_until(lambda: all(map(is_ready, ids)), seconds=60)

        node = http.get(f"/nodes/{added['id']}").json()
        assert node["extraction_status"] == "ready"
        assert "Python" in node["props"]["primary_skills"]
        hits = http.get("/search", params={"q": "sluice gates"}).json()["hits"]
        assert {hit["id"] for hit in hits} >= set(ids[:2])
        status = http.get("/admin/embedding/status").json()
        assert status["status_counts"] == {"ready": 3}
        assert http.get("/readyz").json()["status"] == "ready"
        assert http.delete(f"/nodes/{ids[2]}").status_code == 204
        assert http.get("/docs").status_code == 200
        wait_until(lambda: completed(http) >= 6, seconds=60)


def completed(http: httpx.Client) -> float:
    """Items that workers say they have completed."""
    (line,) = re.findall(r"^penstock_items_completed_total (\S+)$", http.get("/metrics").text, re.M)
    return float(line)


def test_addresses_that_others_reach_need_tokens(home: Path) -> None:
    refused = CommandLine(home, settings=QUICK).run("serve", "--host", "0.0.0.0", "--port", "0")

    assert refused.code == 2
    assert "PENSTOCK_API_JWT_SECRET" in refused.err
    guarded = CommandLine(home, settings=QUICK | {"PENSTOCK_API_JWT_SECRET": SECRET})
    with serving(guarded, "--host", "0.0.0.0", "--port", "0") as anywhere:
        port = httpx.URL(anywhere.base_url).port
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            assert http.get("/health").json() == {"status": "healthy", "service": "penstock-api"}
            assert http.get("/search?q=a").status_code == 401
            assert http.get("/search?q=a", headers=as_tenant("acme")).status_code == 200


@pytest.mark.parametrize(
    ("header", "at_most"), [("content-length: 10000000000", 0), ("transfer-encoding: chunked", 4e6)]
)
def test_a_request_that_is_too_large_is_answered_before_it_is_sent(
    home: Path, header: str, at_most: float
) -> None:
    command = CommandLine(home, settings=QUICK | {"PENSTOCK_API_MAX_JSON_BYTES": "100000"})
    with serving(command) as http:
        url = httpx.URL(http.base_url)
        with socket.create_connection((url.host, url.port or 80), timeout=30) as line:
            line.sendall(f"POST /nodes HTTP/1.1\r\nhost: {url.host}\r\n{header}\r\n\r\n".encode())
            sent = send_until_answered_to(line) if at_most else 0
            assert line.recv(65536).startswith(b"HTTP/1.1 413 ")
        assert sent <= at_most, "what lies in buffers on the way, and no more"
        assert http.get("/runs").status_code == 200


def send_until_answered_to(line: socket.socket) -> int:
    """Send pieces until the other side says something; how many bytes that took."""
    sent = 0
    while not select.select([line], [], [], 0)[0]:
        assert sent < 1e9, "nobody stops us"
        with suppress(ConnectionError):
            line.sendall(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
        sent += 10_000
    return sent


def test_the_log_of_a_run_is_followed_over_broken_connections(
    command: CommandLine, home: Path
) -> None:
    settings = load_settings(home=home)
    with serving(command) as http, open_app(settings) as app:
        spec = SourceSpec("default", "mills", "folder", str(home))
        run = open_run(app.database, spec, profile=None, force=False)
        seen: list[int] = []

        def write() -> None:
            for number in range(60):
                with app.database.write() as tx:
                    record(tx, Event("default", "ING", f"line {number}", run_id=run.id))
            abort_run(app.database, app.queue, run.id, reason="enough")

        writing = threading.Thread(target=write)
        writing.start()
        try:
            while not follow(http, run.id, seen, most=11):
                pass
        finally:
            writing.join()
        lines = http.get(f"/runs/{run.id}/logs").json()["lines"]

    assert seen == [line["seq"] for line in lines]
    assert len(seen) >= 60


def follow(http: httpx.Client, run_id: int, seen: list[int], most: int) -> bool:
    """Read so many events and hang up; True once the run has ended."""
    headers = {"Last-Event-ID": str(seen[-1])} if seen else {}
    left = most
    with http.stream("GET", f"/runs/{run_id}/events", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line == "event: end":
                return True
            if line.startswith("data: "):
                seen.append(json.loads(line.removeprefix("data: "))["seq"])
                left -= 1
            if left == 0:
                return False
    return False


def test_a_server_stops_although_somebody_follows_a_run(command: CommandLine, home: Path) -> None:
    with running(command, "serve", "--port", "0") as server:
        address = server.wait_for(r"running on (http://\S+)")
        with open_app(load_settings(home=home)) as app:
            spec = SourceSpec("default", "mills", "folder", str(home))
            run = open_run(app.database, spec, profile=None, force=False)
        with httpx.stream("GET", f"{address}/runs/{run.id}/events", timeout=60) as response:
            next(response.iter_lines())
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(timeout=60)


def test_what_was_accepted_survives_a_server_that_is_killed(command: CommandLine) -> None:
    address: list[str] = []
    accepted: dict[str, str] = {}

    def send(number: int) -> None:
        """Some nodes, each under its key, again and again until somebody has answered."""
        for key in (f"{number}-{turn}" for turn in range(10)):
            accepted[key] = send_until_answered(address, key)

    with running(command, "serve", "--port", "0") as first:
        address.append(first.wait_for(r"running on (http://\S+)"))
        with ThreadPoolExecutor(4) as pool:
            sending = [pool.submit(send, number) for number in range(4)]
            wait_until(lambda: len(accepted) >= 5)
            first.process.kill()
            with running(command, "serve", "--port", "0") as second:
                address.append(second.wait_for(r"running on (http://\S+)"))
                for one in sending:
                    one.result(timeout=60)
                url = f"{address[-1]}/extraction-jobs?stage=embed&limit=500"
                jobs = httpx.get(url, timeout=60).json()

    assert len(accepted) == 40
    assert sorted(job["node_id"] for job in jobs["jobs"]) == sorted(accepted.values())


def send_until_answered(address: list[str], key: str) -> str:
    """The id of the node, from whichever server answers."""
    body = {"props": {"text": f"number {key}"}}
    found: list[str] = []

    def is_answered() -> bool:
        try:
            answer = httpx.post(
                f"{address[-1]}/nodes", json=body, headers={"Idempotency-Key": key}, timeout=20
            )
        except httpx.TransportError:
            return False
        assert answer.status_code == 200, answer.text
        found.append(answer.json()["id"])
        return True

    wait_until(is_answered, seconds=60)
    return found[0]
