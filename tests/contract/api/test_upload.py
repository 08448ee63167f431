"""Files, sent as they are."""

import json
from typing import Any

import pytest

from penstock.store.schema import nodes
from tests.contract.api.service import RESUME, MakeService, Service, answer_of, problem_of
from tests.unit.text.factories import make_docx, make_pdf

FORMATS: dict[str, bytes] = {
    "cv.txt": RESUME.encode(),
    "cv.md": f"# Ada\n\n{RESUME}".encode(),
    "cv.rst": f"Ada\n===\n\n{RESUME}".encode(),
    "cv.html": f"<html><body><main><h1>Ada</h1><p>{RESUME}</p></main></body></html>".encode(),
    "cv.csv": b"skill,years\nsluice,8\n",
    "cv.json": json.dumps({"about": RESUME}).encode(),
    "cv.xml": f"<cv><about>{RESUME}</about></cv>".encode(),
    "cv.pdf": make_pdf([RESUME]),
}


def send(service: Service, files: dict[str, bytes], **form: str) -> Any:
    parts = [("files", (name, content)) for name, content in files.items()]
    return service.http.post("/upload", files=parts, data=form)


@pytest.mark.full_suite
def test_files_of_many_formats_become_nodes(service: Service) -> None:
    answer = answer_of(send(service, {**FORMATS, "word.docx": make_docx()}))

    assert answer["created"] == len(FORMATS) + 1
    results = answer["results"]
    assert [one["filename"] for one in results] == [*FORMATS, "word.docx"]
    assert [one["size"] for one in results[:-1]] == [len(content) for content in FORMATS.values()]
    assert all(one["embedding_status"] == "queued" and one["job_id"] for one in results)

    service.work(service.app.steps)

    shown = {one["filename"]: service.node(one["id"]) for one in results}
    assert {name: node["embedding_status"] for name, node in shown.items()} == dict.fromkeys(
        shown, "ready"
    )
    assert all("sluice" in shown[name]["text"] for name in FORMATS)
    assert len(service.raw_files()) == len(results)


def test_wishes_of_the_form_hold_for_all_files(service: Service) -> None:
    answer = answer_of(
        send(
            service,
            {"a.txt": RESUME.encode(), "b.txt": RESUME.encode()},
            profile="document",
            classes="Resume, Thing",
            extract="true",
            extract_before_embed="true",
            tenant_id="acme",
        )
    )
    service.work()

    for one in answer["results"]:
        node = service.node(one["id"], tenant_id="acme")
        assert node["profile"] == "document"
        assert node["classes"] == ["Resume", "Thing"]
        assert node["extraction_status"] == node["embedding_status"] == "ready"


def test_a_file_without_a_wish_is_only_embedded(service: Service) -> None:
    answer = answer_of(send(service, {"a.txt": RESUME.encode()}))
    service.work()

    node = service.node(answer["results"][0]["id"])
    assert node["title"]
    assert node["extraction_status"] is None
    assert node["embedding_status"] == "ready"


def test_odd_names_are_only_names(service: Service) -> None:
    names = ["../../etc/passwd", "a/b.txt", "Zoë Ångström.txt", "x" * 300 + ".txt", ".hidden"]

    answer = answer_of(send(service, {name: RESUME.encode() for name in names}))
    service.work()

    assert answer["created"] == len(names)
    assert len(service.raw_files()) == len(names)
    for one in answer["results"]:
        assert service.node(one["id"])["text"] == RESUME


def test_too_many_files_are_refused(service: Service) -> None:
    many = {f"{number}.txt": b"text" for number in range(51)}

    refused = problem_of(send(service, many), 400)

    assert "50" in refused["detail"]
    assert service.count(nodes) == 0
    assert service.raw_files() == []
    assert answer_of(send(service, dict(list(many.items())[:50])))["created"] == 50


def test_an_upload_without_files_is_refused(service: Service) -> None:
    problem_of(service.http.post("/upload", data={"profile": "resume"}), 422)


def test_a_file_that_is_too_large_is_refused_with_its_neighbours(make_service: MakeService) -> None:
    service = make_service(max_document_bytes=1000)

    refused = problem_of(send(service, {"a.txt": b"good", "b.txt": b"x" * 1001}), 413)

    assert "b.txt" in refused["detail"]
    assert service.count(nodes) == 0
    assert service.raw_files() == []
    assert answer_of(send(service, {"b.txt": b"x" * 1000}))["created"] == 1


def test_a_refused_upload_leaves_no_files_behind(make_service: MakeService) -> None:
    service = make_service(embedding={"queue_max_depth": 1})
    answer_of(send(service, {"first.txt": b"first"}))

    problem_of(send(service, {"second.txt": b"second"}), 429)
    problem_of(send(service, {"third.txt": b"third"}, profile="recipe"), 400)

    assert service.count(nodes) == 1
    assert len(service.raw_files()) == 1


def test_a_raw_store_that_cannot_be_used_is_no_fault_of_the_file(service: Service) -> None:
    service.settings.home.mkdir(exist_ok=True)
    (service.settings.home / "raw").write_text("a file where the folder should be")

    problem_of(send(service, {"a.txt": b"text"}), 503)

    assert service.count(nodes) == 0
