"""Nodes that only name where their bytes lie."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.crawl.s3 import S3Access
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


def test_a_folder_above_the_home_does_not_open_the_home(
    make_service: MakeService, tmp_path: Path
) -> None:
    home, meant = tmp_path / "home", tmp_path / "home" / "payloads"
    service = make_service(payload_roots=(str(tmp_path), str(home), str(meant), str(home / "raw")))
    upload = service.http.post("/upload", files=[("files", ("cv.txt", RESUME.encode()))])
    assert upload.status_code == 200
    (raw,) = service.raw_files()
    (home / "up.json").write_text(RESUME)
    # Not a file of Penstock's own, which no crawl reads either.
    notes = write(home, "notes.txt")
    (tmp_path / "file.txt").symlink_to(raw)
    (tmp_path / "folder").symlink_to(home)
    database = Path(str(sa.engine.make_url(service.database.url).database))
    (meant / "inner").mkdir(parents=True)
    (meant / "link.txt").symlink_to(raw)

    for way in (
        raw,
        home / "up.json",
        notes,
        tmp_path / "folder" / "notes.txt",
        tmp_path / "file.txt",
        tmp_path / "folder" / "up.json",
        meant / "link.txt",
        database,
        Path(f"{database}-wal"),
    ):
        node = add_reference(service, way.as_uri())
        (job,) = service.get("/extraction-jobs", stage="text", node_id=node["id"])["jobs"]
        assert job["error_class"] == "forbidden", way
        assert node["text"] == "", way

    for way in (write(meant), write(meant / "inner"), write(tmp_path)):
        assert add_reference(service, way.as_uri())["text"] == RESUME, way


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
        api_s3_prefixes=(f"s3://{bucket}/cvs/",),
        **LOOPBACK,
    )

    node = add_reference(service, f"s3://{bucket}/cvs/ada.txt")
    missing = add_reference(service, f"s3://{bucket}/cvs/nobody.txt")

    assert node["text"] == RESUME
    assert node["embedding_status"] == "ready"
    assert missing["text"] == ""
    assert missing["embedding_error"]


def test_no_other_object_is_read(
    make_service: MakeService, s3_access: S3Access, s3: Any, bucket: str
) -> None:
    for key in ("cvs/ada.txt", "cvs-2/ada.txt", "cvs/../ada.txt", "kept/raw/t/s/ada.txt"):
        s3.put_object(Bucket=bucket, Key=key, Body=RESUME.encode())
    service = make_service(
        s3_endpoint_url=s3_access.endpoint_url,
        s3_region=s3_access.region,
        s3_access_key_id=s3_access.access_key_id,
        s3_secret_access_key=s3_access.secret_access_key,
        raw_store=f"s3://{bucket}//kept",
        api_s3_prefixes=(f"acme=s3://{bucket}/cvs/", f"s3://{bucket}/kept/"),
    )

    def fault_of(key: str, tenant_id: str) -> str:
        answer = service.post(
            "/nodes", {"payload_ref": f"s3://{bucket}/{key}", "tenant_id": tenant_id}
        )
        service.work()
        found = service.get(
            "/extraction-jobs", stage="text", node_id=answer["id"], tenant_id=tenant_id
        )
        (job,) = found["jobs"]
        assert service.node(answer["id"], tenant_id=tenant_id)["text"] in ("", RESUME)
        return f"{job['error_class']} {job['error_message']}" if job["error_class"] else ""

    assert fault_of("cvs/ada.txt", "acme") == ""
    for key, tenant_id in (
        ("cvs/ada.txt", "globex"),
        ("cvs-2/ada.txt", "acme"),
        ("cvs/../ada.txt", "acme"),
    ):
        told = fault_of(key, tenant_id)
        assert told.startswith("forbidden")
        assert "PENSTOCK_API_S3_PREFIXES" in told
    for key in ("kept/raw/t/s/ada.txt", "kept//raw/t/s/ada.txt"):
        assert "raw store" in fault_of(key, "acme")


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
