"""Requests that are too large, or come from strangers, are not read to their end."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from penstock.store.schema import nodes
from tests.contract.api.service import MakeService, Service
from tests.contract.api.tokens import SECRET

# What is not read reaches no database.
pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
CHUNK = 1000
CHUNKS = 1000
PART = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\n'


def send_slowly(
    service: Service, path: str, media_type: str, *, declared: bool, **others: str
) -> tuple[int, str, int]:
    """A body of a million bytes, piece by piece: status and type of the answer, pieces taken."""
    taken = 0
    answered: dict[str, Any] = {}

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        # Whatever it is that is sent, it begins as a file of a form does.
        body = PART if taken == 1 else b"x" * CHUNK
        return {"type": "http.request", "body": body, "more_body": taken < CHUNKS}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answered.update(message)

    sent = {"host": "127.0.0.1", "content-type": media_type, **others}
    headers = [(name.encode(), value.encode()) for name, value in sent.items()]
    if declared:
        headers.append((b"content-length", str(CHUNK * CHUNKS).encode()))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    asyncio.run(service.web(scope, receive, send))
    answer_headers = dict(answered["headers"])
    return answered["status"], answer_headers[b"content-type"].decode(), taken


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/nodes", "application/json"),
        ("/nodes/batch", "application/json"),
        ("/admin/embedding/requeue", "application/json"),
        ("/upload", "multipart/form-data; boundary=b"),
    ],
)
@pytest.mark.parametrize("declared", [True, False])
def test_a_body_is_read_to_the_limit_and_no_further(
    make_service: MakeService, path: str, media_type: str, declared: bool
) -> None:
    service = make_service(api_max_request_bytes=50_000, api_max_json_bytes=50_000)

    status, answered, taken = send_slowly(service, path, media_type, declared=declared)

    assert status == 413
    assert answered == "application/problem+json"
    assert taken == 0 if declared else taken <= 52
    assert service.count(nodes) == 0


def test_uploads_may_be_larger_than_json(make_service: MakeService) -> None:
    service = make_service(api_max_request_bytes=50_000, api_max_json_bytes=5_000)

    as_json = service.http.post("/nodes", json={"props": {"text": "x" * 10_000}})
    as_file = service.http.post("/upload", files=[("files", ("a.txt", b"x" * 10_000))])

    assert (as_json.status_code, as_file.status_code) == (413, 200)


def test_nothing_is_read_of_who_shows_no_token(make_service: MakeService) -> None:
    service = make_service(api_jwt_secret=SECRET)

    for path, media_type in [
        ("/nodes", "application/json"),
        ("/upload", "multipart/form-data; boundary=b"),
    ]:
        status, answered, taken = send_slowly(service, path, media_type, declared=False)
        assert (status, answered, taken) == (401, "application/problem+json", 0)


@pytest.mark.parametrize(
    "headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}]
)
def test_nothing_is_read_of_a_page_of_another_site(
    make_service: MakeService, headers: dict[str, str]
) -> None:
    service = make_service()

    for path, media_type in [
        ("/nodes", "application/json"),
        ("/upload", "multipart/form-data; boundary=b"),
    ]:
        refused = send_slowly(service, path, media_type, declared=False, **headers)
        assert refused == (403, "application/problem+json", 0)
