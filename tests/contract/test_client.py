"""The Python client, against the real application."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock import Client
from penstock.client import ApiError, Busy
from penstock.errors import ServiceError
from penstock.runs.execute import open_source_run
from penstock.store.database import Database
from tests.contract.api.service import RESUME, Service


@pytest.fixture
def service(database: Database, tmp_path: Path) -> Iterator[Service]:
    limits = {"queue_max_depth": 20, "tenant_max_pending": 20}
    with Service(database, tmp_path / "home", embedding=limits) as service:
        yield service


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    def forward(request: httpx.Request) -> httpx.Response:
        answer = service.http.request(
            request.method,
            str(request.url),
            content=request.read(),
            headers=dict(request.headers),
        )
        return httpx.Response(
            answer.status_code, headers=dict(answer.headers), content=answer.content
        )

    transport = httpx.MockTransport(forward)
    with Client("http://127.0.0.1", patience_seconds=0, transport=transport) as client:
        yield client


def test_a_node_is_added_waited_for_found_refreshed_and_deleted(
    client: Client, service: Service
) -> None:
    client.wait_until_up()
    added = client.add(RESUME, classes=["Resume"], extract=True)
    assert added.embedding_status == "queued"
    service.work()
    (node,) = client.wait(added.id)
    assert node.settled
    assert (node.embedding_status, node.extraction_status, node.has_embedding) == (
        "ready",
        "ready",
        True,
    )
    assert "Python" in node.props["primary_skills"]
    (hit,) = client.search("sluice gates", fields={"primary_skills": "Python"})
    assert (hit.id, "<mark>" in hit.snippet) == (node.id, True)
    assert client.refresh(node.id) > 0
    client.delete(node.id)
    with pytest.raises(ApiError, match="there is no node") as gone:
        client.get(node.id)
    assert gone.value.status == 404


def test_a_batch_returns_nodes_and_errors_by_place(client: Client) -> None:
    outcome = client.add_batch(
        [{"props": {"text": "a"}}, {"profile": "moon"}, {"props": {"text": "b"}}],
        continue_on_error=True,
    )
    assert sorted(outcome.nodes) == [0, 2]
    assert "no profile is named 'moon'" in outcome.errors[1]


def test_files_are_uploaded(client: Client, service: Service, tmp_path: Path) -> None:
    path = tmp_path / "cv.txt"
    path.write_text(RESUME)
    (added,) = client.upload(path, profile="resume", extract=True)
    service.work()
    (node,) = client.wait(added.id)
    assert "sluice gates" in node.text


def test_a_request_is_repeated_under_its_key_without_harm(client: Client) -> None:
    first = client.add("once", idempotency_key="monday")
    assert client.add("once", idempotency_key="monday") == first
    with pytest.raises(ApiError, match="another request"):
        client.add("twice", idempotency_key="monday")


def test_a_full_queue_is_busy_and_says_for_how_long(client: Client) -> None:
    client.add_batch([{"props": {"text": f"{n}"}} for n in range(20)])
    with pytest.raises(Busy) as busy:
        client.add("one too many")
    assert busy.value.status == 429
    assert busy.value.retry_after_seconds >= 1


def test_waiting_for_a_node_without_a_worker_ends(client: Client) -> None:
    added = client.add("somebody should work on this")
    with pytest.raises(TimeoutError, match="does a worker run"):
        client.wait(added.id, timeout_seconds=0)


def test_runs_are_listed_shown_and_their_logs_read(client: Client, service: Service) -> None:
    run = open_source_run(service.app.sources, "https://acme.test/jobs", "default")
    (listed,) = client.list_runs()
    assert (listed.run_id, listed.status, listed.has_ended) == (run.id, "pending", False)
    with pytest.raises(TimeoutError, match="still pending"):
        client.wait_run(run.id, timeout_seconds=0)
    assert client.abort(run.id).status == "aborted"
    assert client.wait_run(run.id).has_ended
    lines = [*client.watch(run.id)]
    assert lines[-1].message.startswith("aborted")
    assert [line.seq for line in client.watch(run.id, after=lines[0].seq)] == [
        line.seq for line in lines[1:]
    ]
    with pytest.raises(ApiError, match="nothing to resume") as refused:
        client.resume(run.id)
    assert refused.value.status == 409


def test_a_client_that_is_told_no_address_says_that_nothing_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    with pytest.raises(ServiceError, match="no `penstock up` runs"):
        Client()


def test_a_busy_server_is_asked_again_after_the_time_it_names() -> None:
    answers = iter(
        [
            httpx.Response(503, headers={"Retry-After": "0"}, json={"detail": "not now"}),
            httpx.Response(200, json={"status": "healthy"}),
        ]
    )
    transport = httpx.MockTransport(lambda _: next(answers))
    with Client("http://busy.test", transport=transport) as client:
        assert client.request("GET", "/health") == {"status": "healthy"}


def test_a_token_goes_with_every_request_and_into_no_error() -> None:
    asked: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(401, text="no")

    with (
        Client("http://api.test", "secret", transport=httpx.MockTransport(refuse)) as client,
        pytest.raises(ApiError) as refused,
    ):
        client.get("x")
    assert asked[0].headers["authorization"] == "Bearer secret"
    assert "secret" not in str(refused.value)


def test_what_needs_review_is_gone_through_corrected_and_accepted(
    client: Client, service: Service
) -> None:
    vague = [client.add("1234567890 " * 20, profile="resume", extract=True).id for _ in range(3)]
    service.work()
    assert [one["id"] for one in client.review(reason="missing")] == vague[::-1]
    assert [one["id"] for one in client.review(profile="resume", limit=1)] == [vague[2]]
    node = client.correct(vague[0], {"primary_skills": ["Rowing"]}, reason="I know")
    assert node.props["primary_skills"] == ["Rowing"]
    assert node.corrections[0]["reason"] == "I know"
    assert not client.accept(vague[0]).needs_review
    assert [one["id"] for one in client.review()] == [vague[2], vague[1]]
    with pytest.raises(ApiError, match="has no field 'x'"):
        client.correct(vague[0], {"x": 1})
