"""Nodes that are done again, and nodes that go."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.operations import nodes as module
from penstock.operations.nodes import delete_node
from penstock.queue.items import Outcome
from penstock.store.database import Database
from penstock.store.schema import (
    attempts,
    embeddings,
    extractions,
    nodes,
    texts,
    work_items,
)
from tests.contract.api.service import RESUME, MakeService, Service
from tests.contract.ingestion import Workplace, counts, make_text
from tests.factories import TENANT
from tests.together import run_together

ORPHANS = (texts, embeddings, extractions, work_items, attempts)


def upload(service: Service, name: str = "cv.txt", **form: str) -> str:
    """A node of a file, worked on; its id."""
    files = [("files", (name, RESUME.encode()))]
    answer = service.http.post("/upload", files=files, data=form).json()
    service.work()
    return str(answer["results"][0]["id"])


class TestRefreshing:
    def test_a_node_is_extracted_and_embedded_again_although_nothing_changed(
        self, make_service: MakeService
    ) -> None:
        service = make_service(extraction={"enabled": True})
        node = service.add()
        service.work()
        service.steps.calls.clear()

        answer = service.post(f"/nodes/{node['id']}/refresh")
        assert answer == {
            "id": node["id"],
            "job_id": answer["job_id"],
            "stage": "extract",
            "enqueued": True,
        }
        service.work()

        assert service.steps.count(Stage.EXTRACT) == 1
        assert service.steps.count(Stage.EMBED) == 1
        (item,) = service.items(work_items.c.id == answer["job_id"])
        assert item.outcome == "done", "not reused"

    def test_however_often_it_is_asked_for_it_is_done_once(self, service: Service) -> None:
        node = service.add()
        service.work()

        answers = run_together(8, lambda _: service.post(f"/nodes/{node['id']}/refresh"))

        assert len({answer["job_id"] for answer in answers}) == 1
        assert sorted(answer["enqueued"] for answer in answers) == [False] * 7 + [True]
        assert len(service.items(work_items.c.status == "pending")) == 1

    def test_a_node_that_was_only_embedded_is_only_embedded_again(self, service: Service) -> None:
        node = service.add()
        service.work()

        assert service.post(f"/nodes/{node['id']}/refresh")["stage"] == "embed"
        service.work()

        assert service.node(node["id"])["extraction_status"] is None

    def test_how_far_a_vector_moved_is_recorded(self, service: Service) -> None:
        node = service.add()
        service.work()
        assert service.node(node["id"])["embedding_drift"] is None
        with service.database.write() as tx:
            tx.execute(sa.update(texts).values(body="Something else altogether."))

        service.post(f"/nodes/{node['id']}/refresh")
        service.work()
        moved = service.node(node["id"])["embedding_drift"]
        service.post(f"/nodes/{node['id']}/refresh")
        service.work()

        assert moved > 0.1
        assert service.node(node["id"])["embedding_drift"] == pytest.approx(0, abs=1e-6)

    def test_a_payload_is_fetched_again(self, make_service: MakeService, tmp_path: Path) -> None:
        service = make_service(payload_roots=(str(tmp_path),))
        path = tmp_path / "cv.txt"
        path.write_text("Before.")
        node = service.post("/nodes", {"payload_ref": path.as_uri()})
        service.work()

        path.write_text(RESUME)
        assert service.post(f"/nodes/{node['id']}/refresh")["stage"] == "text"
        service.work()

        shown = service.node(node["id"])
        assert shown["text"] == RESUME
        assert shown["embedding_status"] == "ready"
        assert shown["extraction_status"] is None, "what nobody asked for is not done now either"
        assert service.find("sluice gates") == [node["id"]]

    def test_fields_that_were_extracted_since_are_extracted_again(
        self, make_service: MakeService, tmp_path: Path
    ) -> None:
        service = make_service(payload_roots=(str(tmp_path),))
        path = tmp_path / "cv.txt"
        path.write_text(RESUME)
        node = service.post("/nodes", {"payload_ref": path.as_uri(), "profile": "resume"})
        service.work()
        service.post("/extraction-jobs", {"node_id": node["id"]})
        service.work()
        path.write_text(RESUME.replace("Python", "COBOL"))

        service.post(f"/nodes/{node['id']}/refresh")
        service.work()

        assert "Python" not in service.node(node["id"])["props"]["primary_skills"]

    @pytest.mark.full_suite
    def test_a_file_whose_text_failed_is_read_again_as_what_it_is(self, service: Service) -> None:
        files = [("files", ("skills.csv", b"skill,years\nsluice,8\n"))]
        answer = service.http.post("/upload", files=files).json()["results"][0]
        service.post(f"/extraction-jobs/{answer['job_id']}/cancel")

        service.post(f"/nodes/{answer['id']}/refresh")
        service.work(service.app.steps)

        node = service.node(answer["id"])
        assert node["media_type"] == "text/csv"
        assert node["embedding_status"] == "ready"
        assert node["extraction_status"] is None


class TestDeleting:
    def test_nothing_is_left_of_a_deleted_node(self, service: Service) -> None:
        gone, stays = upload(service, extract="true"), upload(service)
        assert len(service.raw_files()) == 2

        service.delete(f"/nodes/{gone}")

        service.get(f"/nodes/{gone}", 404)
        assert len(service.raw_files()) == 1
        for mode in ("text", "vector", "hybrid"):
            assert service.find("sluice gates", mode=mode) == [stays]
        for table in ORPHANS:
            key = table.c.get("node_id")
            if key is not None:
                assert service.count(table, key == gone) == 0, table.name
        assert service.count(texts) == service.count(embeddings) == service.count(nodes) == 1
        service.delete(f"/nodes/{gone}", 404)

    def test_raw_bytes_that_another_node_has_stay(self, service: Service) -> None:
        first, second = upload(service), upload(service)
        with service.database.write() as tx:
            key = tx.execute(sa.select(nodes.c.raw_key).where(nodes.c.id == first)).scalar_one()
            tx.execute(sa.update(nodes).where(nodes.c.id == second).values(raw_key=key))

        service.delete(f"/nodes/{first}")
        assert service.app.raw.get(key) == RESUME.encode()
        service.delete(f"/nodes/{second}")
        assert not (service.settings.home / key).exists()

    def test_older_versions_of_the_raw_bytes_go_too(
        self, database: Database, tmp_path: Path
    ) -> None:
        workplace = Workplace(database, tmp_path / "work")
        raw = workplace.app.raw

        def stored() -> list[str]:
            found = raw.list_objects(TENANT, str(workplace.folder))
            return sorted(one.key for one in found)

        for version in ("first", "second", "third"):
            for name in ("gone", "stays"):
                workplace.write(f"{name}.txt", make_text(f"{name} {version}", about=version * 9))
            workplace.ingest()
        # A version that was never read: it is known to its work item alone.
        for name in ("gone", "never"):
            workplace.write(f"{name}.txt", make_text(f"{name} broken", about="nothing at all"))
            workplace.steps.on(Stage.TEXT, name, Fault(ErrorClass.CORRUPTION, "it is broken"))
        workplace.ingest()
        before = stored()

        for name in ("gone.txt", "never.txt"):
            node_id = workplace.node(name).id
            delete_node(database, workplace.app.queue, raw, TENANT, node_id)

        assert len(before) == 8
        assert stored() == [key for key in before if "/stays.txt/" in key]
        workplace.close()

    def test_a_worker_that_is_at_it_can_no_longer_write(self, service: Service) -> None:
        node = service.add()
        with service.database.write() as tx:
            claim = service.app.queue.claim(tx, "a worker")
            service.app.queue.start(tx, claim, claim.items)

        service.delete(f"/nodes/{node['id']}")
        service.app.processor(service.steps).process(claim)

        with service.database.write() as tx:
            assert service.app.queue.complete(tx, claim, claim.items, Outcome.DONE) == []
        assert service.count(embeddings) == service.count(work_items) == 0

    @pytest.mark.parametrize("begun", [False, True])
    def test_a_run_ends_without_the_documents_that_were_deleted_meanwhile(
        self, service: Service, database: Database, tmp_path: Path, begun: bool
    ) -> None:
        workplace = Workplace(database, tmp_path / "work")
        for name in ("gone", "stays"):
            workplace.write(f"{name}.txt", make_text(name))
        lease = workplace.open()
        workplace.admit(lease)
        if begun:
            workplace.drain(lease.run.id)
        gone = workplace.node("gone.txt").id

        service.delete(f"/nodes/{gone}", tenant_id=TENANT)
        workplace.drain(lease.run.id)
        workplace.app.recovery.run()
        report = workplace.report(lease.run.id)
        document = workplace.document(lease.run.id, "gone.txt")
        workplace.close()

        assert report.run.status == "finished"
        assert document.node_id is None
        if begun:
            assert counts(report) == {"ready": 2}, "what was done stays counted"
        else:
            assert counts(report) == {"ready": 1, "error": 1}
            assert "deleted" in document.reason

    def test_raw_bytes_of_a_document_that_is_back_already_stay(
        self, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        workplace = Workplace(database, tmp_path / "work")
        workplace.write("a.txt", make_text("Watermills"))
        workplace.ingest()
        # Called between the deletion of the rows and that of the bytes.
        monkeypatch.setattr(module, "finalize_runs_of", lambda *_: workplace.ingest())
        node_id = workplace.node("a.txt").id
        delete_node(database, workplace.app.queue, workplace.app.raw, TENANT, node_id)
        again = workplace.node("a.txt")
        workplace.close()

        assert again.id != node_id
        assert workplace.app.raw.get(again.raw_key).decode() == make_text("Watermills")

    def test_a_raw_store_that_cannot_be_used_is_told(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        node = upload(service)

        def fail(*_: Any, **__: Any) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "unlink", fail)
        refused = service.delete(f"/nodes/{node}", 503)
        monkeypatch.undo()

        assert "raw bytes" in refused["detail"]
