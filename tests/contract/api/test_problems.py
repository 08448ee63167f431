"""Every error is a problem document that says what to do, and nothing that is secret."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigurationError, StoreError
from penstock.llm import profiles
from penstock.runs.execute import execute_run, list_source, open_source_run
from penstock.search.hybrid import Searcher
from penstock.store.database import Database
from tests.contract.api.service import RESUME, MakeService, Service, problem_of

# How errors are told has nothing to do with the database.
pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
RECIPES = """
from pydantic import BaseModel
from penstock.llm.profiles import Profile
from penstock.llm.profiles import Confidence

class Recipe(BaseModel):
    dish: str | None = None
    confidence: Confidence

RECIPE = Profile(name="recipe", schema=Recipe, prompt="You read a recipe.")
"""


def answer_with(service: Service, monkeypatch: pytest.MonkeyPatch, error: Exception) -> Any:
    """What a route answers in which this happens."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(Searcher, "search", fail)
    service.http._transport.raise_server_exceptions = False  # type: ignore[attr-defined]
    return service.http.get("/search?q=a")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("PUT", "/nodes", 405),
        ("DELETE", "/search", 405),
        ("GET", "/nodes/nonsense", 404),
        ("GET", "/admin/text/status", 422),
        ("GET", "/runs?limit=many", 422),
        ("POST", "/nodes", 422),
    ],
)
def test_whatever_is_wrong_is_told_in_one_form(
    service: Service, method: str, path: str, status: int
) -> None:
    response = service.http.request(method, path)

    assert response.status_code == status
    problem_of(response, status)


def test_every_fault_of_a_body_is_listed_with_its_place(service: Service) -> None:
    body = {"classes": "Resume", "props": [], "colour": "red", "tenant_id": ""}

    problem = service.post("/nodes", body, 422)

    places = {one["where"] for one in problem["errors"]}
    assert places == {"body.classes", "body.props", "body.colour", "body.tenant_id"}
    assert all(one["what"] for one in problem["errors"])
    assert problem["detail"] == "{where}: {what}".format(**problem["errors"][0])


def test_what_was_sent_is_not_sent_back(service: Service) -> None:
    problem = service.post("/nodes", {"classes": "my-password"}, 422)

    assert "my-password" not in str(problem)


@pytest.mark.parametrize(
    "content", [b"{", b"\xff\xfe", b'{"props": ' + b"[" * 100_000, b"9" * 5000, b"null", b'"x"']
)
def test_a_body_that_is_no_json_is_refused(service: Service, content: bytes) -> None:
    response = service.http.post(
        "/nodes", content=content, headers={"content-type": "application/json"}
    )

    assert response.status_code in (400, 422)
    problem_of(response, response.status_code)


def test_a_body_of_another_kind_is_refused(service: Service) -> None:
    for media_type in ("text/plain", "application/x-www-form-urlencoded", "application/xml"):
        response = service.http.post("/nodes", content=b"{}", headers={"content-type": media_type})
        problem_of(response, 422)
    form = service.http.post("/upload", json={"files": []})
    problem_of(form, 422)
    broken = service.http.post(
        "/upload", content=b"--b\r\n", headers={"content-type": "multipart/form-data; boundary=b"}
    )
    assert broken.status_code in (400, 422)
    problem_of(broken, broken.status_code)


@pytest.mark.parametrize(
    "error", [RuntimeError("secret: hunter2"), StoreError("value hunter2 is too long")]
)
def test_a_fault_of_ours_is_logged_and_not_told(
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    with caplog.at_level(logging.ERROR):
        problem = problem_of(answer_with(service, monkeypatch, error), 500)

    assert "hunter2" not in str(problem)
    assert "log" in problem["detail"]
    assert "GET /search" in caplog.text
    assert "hunter2" in caplog.text


def test_a_database_that_is_away_is_told_without_its_password(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.exc import OperationalError

    def refuse(*_: Any) -> Any:
        raise OperationalError("connect", {}, Exception("connection refused"))

    monkeypatch.setattr(service.app.database, "url", "postgresql://ada:hunter2@db.example/x")
    monkeypatch.setattr(service.app.database.engine, "connect", refuse)
    problem = problem_of(service.http.get("/runs"), 503)

    assert "hunter2" not in str(problem)
    assert "connection refused" in problem["detail"]


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (
            "could not read raw bytes (/srv/p/raw/a/b.txt): gone",
            "could not read raw bytes (…): gone",
        ),
        ("the database sqlite:////srv/p/a.db cannot be used: locked", "sqlite:… cannot be used"),
        ('connection to server on socket "/run/.s.PGSQL.5432" failed', 'socket "…" failed'),
        ("PENSTOCK_HOME=/srv/my is full. Make room", "PENSTOCK_HOME=… is full. Make room"),
        ("https://a.test/x/y and s3://b/c/d do not answer", "https://a.test/x/y and s3://b/c/d do"),
        ("run `penstock doctor` and/or read it", "run `penstock doctor` and/or read it"),
    ],
)
def test_paths_of_the_server_are_logged_and_not_told(
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    told: str,
    shown: str,
) -> None:
    with caplog.at_level(logging.WARNING):
        problem = problem_of(answer_with(service, monkeypatch, ConfigurationError(told)), 503)

    assert shown in problem["detail"]
    assert "/srv" not in str(problem)
    assert f"GET /search cannot be answered now: {told}" in caplog.text


def test_a_home_with_a_space_in_its_name_is_not_told(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "Ada Park" / "home"
    home.mkdir(parents=True)
    (home / "raw").write_text("a file where the folder should be")
    with Service(database, home) as service, caplog.at_level(logging.WARNING):
        files = [("files", ("a.txt", b"text"))]
        problem = problem_of(service.http.post("/upload", files=files), 503)

    assert "could not store raw bytes" in problem["detail"]
    assert "Park" not in str(problem)
    assert str(home) in caplog.text


def ingest(service: Service, folder: Path) -> int:
    """The number of a run over this folder."""
    app = service.app
    run = open_source_run(app.sources, str(folder), service.settings.tenant)
    with app.hold_run(run.id) as held:
        admission = app.admission(held.lease)
        execute_run(
            held,
            discover=partial(list_source, app.sources, held.run),
            fetch=admission.fetch_batches,
            admit=admission.record,
            worker=app.run_worker(held),
        )
    return run.id


def test_where_raw_bytes_lie_is_stored_and_not_told(database: Database, tmp_path: Path) -> None:
    payload = tmp_path / "public" / "cv.txt"
    payload.parent.mkdir()
    payload.write_text(RESUME)
    home = tmp_path / "Ada Park" / "home"
    home.mkdir(parents=True)
    (home / "raw").write_text("a file where the folder should be")
    with Service(database, home, payload_roots=(str(payload.parent),)) as service:
        added = {"payload_ref": payload.as_uri(), "props": {"message": "in /srv/mine"}}
        node_id = service.post("/nodes", added)["id"]
        service.work()
        run_id = ingest(service, payload.parent)
        node = service.node(node_id)
        answers = [
            node,
            service.get("/extraction-jobs", stage="text"),
            service.get("/runs"),
            service.get(f"/runs/{run_id}"),
            service.get(f"/runs/{run_id}/logs"),
            service.http.get(f"/runs/{run_id}/events").text,
        ]
        (job,) = service.items()
        answers.append(service.get(f"/extraction-jobs/{job.id}"))

    for answer in answers:
        assert "Park" not in str(answer)
    assert "could not store raw bytes" in node["embedding_error"]
    assert "could not store raw bytes" in str(answers[3])
    assert node["props"]["message"] == "in /srv/mine", "what its owner wrote"
    assert str(home) in job.error_message


def test_passwords_of_redis_are_not_told(make_service: MakeService) -> None:
    service = make_service(redis_url="redis://ada:hunter2@127.0.0.1:1/0")

    for response in (service.http.post("/nodes", json={}), service.http.get("/readyz")):
        assert "hunter2" not in str(problem_of(response, 503))


def test_profiles_of_ones_own_are_known_to_the_first_request(
    make_service: MakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "_profiles", dict(profiles._profiles))
    profiles._load.cache_clear()
    (tmp_path / "recipes.py").write_text(RECIPES)
    service = make_service(extraction={"profiles": (str(tmp_path / "recipes.py"),)})

    answer = service.post("/nodes/batch", {"nodes": [{"profile": "recipe"}]})

    assert service.node(answer["results"][0]["id"])["profile"] == "recipe"
