"""Nodes that only name where their bytes lie."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.crawl.s3_client import S3Access
from tests.contract.api.service import RESUME, MakeService, Service

LOOPBACK = {"allow_private_addresses": True, "crawl_delay_seconds": 0}


@contextmanager
def serve(*, status: int = 200, content: str = RESUME) -> Iterator[str]:
    """A page on this machine; its address."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.startswith("/resume.txt")
            self.send_response(status if found else 404)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.end_headers()
            if found:
                self.wfile.write(content.encode())

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/resume.txt"
        finally:
            server.shutdown()
            thread.join()


def add_reference(service: Service, reference: str, **body: Any) -> dict[str, Any]:
    """A node of this payload, worked on; as it stands then."""
    answer = service.post("/nodes", {"payload_ref": reference, **body})
    assert answer["job_id"] is not None
    service.work()
    return service.node(answer["id"])


def write(folder: Path, name: str = "resume.txt") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(RESUME)
    return folder / name


def test_a_file_below_an_allowed_folder_is_read(make_service: MakeService, tmp_path: Path) -> None:
    path = write(tmp_path / "payloads")
    service = make_service(payload_roots=(str(tmp_path / "payloads"),))

    node = add_reference(service, path.as_uri(), props={"text": "not this", "name": "Ada"})

    assert node["text"] == RESUME
    assert node["payload_ref"] == node["url"] == path.as_uri()
    assert node["embedding_status"] == "ready"
    assert len(service.raw_files()) == 1, "its bytes are kept"
    assert service.find("sluice gates") == [node["id"]]


def test_no_other_file_is_read(make_service: MakeService, tmp_path: Path) -> None:
    outside = write(tmp_path / "elsewhere")
    inside = write(tmp_path / "payloads")
    (inside.parent / "link.txt").symlink_to(outside)
    service = make_service(payload_roots=(str(inside.parent),))
    ways = [
        outside.as_uri(),
        f"{inside.parent.as_uri()}/../elsewhere/resume.txt",
        f"{inside.parent.as_uri()}/%2e%2e/elsewhere/resume.txt",
        f"{inside.parent.as_uri()}/link.txt",
        f"{inside.parent.as_uri()}-more/resume.txt",
    ]

    for way in ways:
        node = add_reference(service, way)
        (job,) = service.get("/extraction-jobs", stage="text", node_id=node["id"])["jobs"]
        assert job["status"] == "failed", way
        assert job["error_class"] == "forbidden", way
        assert job["attempts"] == 1, "trying again cannot help"
        assert node["text"] == ""
    assert service.raw_files() == []


def test_no_file_at_all_is_read_unless_folders_are_named(service: Service, tmp_path: Path) -> None:
    node = add_reference(service, write(tmp_path / "payloads").as_uri())

    (job,) = service.get("/extraction-jobs", stage="text", node_id=node["id"])["jobs"]
    assert job["error_class"] == "forbidden"
    assert "PENSTOCK_PAYLOAD_ROOTS" in job["error_message"]


@pytest.mark.full_suite
def test_a_page_of_a_private_address_is_not_fetched(service: Service) -> None:
    with serve() as address:
        node = add_reference(service, address)

    (job,) = service.get("/extraction-jobs", stage="text", node_id=node["id"])["jobs"]
    assert job["error_class"] == "forbidden"
    assert node["text"] == ""


@pytest.mark.full_suite
def test_a_page_of_a_private_address_is_fetched_where_that_is_allowed(
    make_service: MakeService,
) -> None:
    service = make_service(**LOOPBACK)
    with serve() as address:
        node = add_reference(service, address, extract_before_embed=True)

    assert node["text"] == RESUME
    assert node["extraction_status"] == node["embedding_status"] == "ready"


def test_an_object_in_s3_is_read(
    make_service: MakeService, s3_access: S3Access, s3: Any, bucket: str
) -> None:
    s3.put_object(Bucket=bucket, Key="cvs/ada.txt", Body=RESUME.encode())
    service = make_service(
        s3_endpoint_url=s3_access.endpoint_url,
        s3_region=s3_access.region,
        s3_access_key_id=s3_access.access_key_id,
        s3_secret_access_key=s3_access.secret_access_key,
        **LOOPBACK,
    )

    node = add_reference(service, f"s3://{bucket}/cvs/ada.txt")
    missing = add_reference(service, f"s3://{bucket}/cvs/nobody.txt")

    assert node["text"] == RESUME
    assert node["embedding_status"] == "ready"
    assert missing["text"] == ""
    assert missing["embedding_error"]


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "ftp://a/b",
        "/etc/passwd",
        "resume.txt",
        "s3://",
        "s3://bucket",
        "s3://bucket/",
        "s3://no bucket/key",
        "http://",
        "http://[",
        "https://ada:secret@example.com/cv.pdf",
        "file://",
        "file://host/cv.pdf",
    ],
)
def test_a_reference_of_another_kind_is_refused_at_the_door(
    service: Service, reference: str
) -> None:
    refused = service.post("/nodes", {"payload_ref": reference}, 422)

    assert "payload_ref" in refused["detail"]
    assert "secret" not in refused["detail"]


def test_one_payload_that_cannot_be_had_costs_its_neighbours_nothing(
    make_service: MakeService, tmp_path: Path
) -> None:
    good = write(tmp_path / "payloads").as_uri()
    service = make_service(payload_roots=(str(tmp_path / "payloads"),))
    references = [good, "file:///nowhere", f"{good}%00", "http://127.0.0.1/", good]
    batch = service.post(
        "/nodes/batch", {"nodes": [{"payload_ref": reference} for reference in references]}
    )

    service.work()

    nodes = [service.node(one["id"]) for one in batch["results"]]
    assert [node["text"] == RESUME for node in nodes] == [True, False, False, False, True]
    assert {node["embedding_status"] for node in (nodes[0], nodes[-1])} == {"ready"}
