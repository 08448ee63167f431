"""The OpenAPI document is true: whatever is sent, the answers are those it tells of."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.result import Ok

from entrypoints.api import starting
from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.runs.lifecycle import abort_run
from penstock.runs.run import Run
from penstock.store.database import Database
from tests.contract.api.routes import OPEN, routes_of
from tests.contract.api.service import Service
from tests.contract.ingestion import make_text

pytestmark = pytest.mark.full_suite

EXAMPLES = 10
# What pydantic takes for a number, a yes or a no beyond what a schema can say is no fault, and
# neither is a refusal for a reason that no schema knows (a profile that does not exist).
CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
)
load_all_checks()


@pytest.fixture(scope="module")
def service(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all that is sent, with something of everything in it."""
    folder = tmp_path_factory.mktemp("openapi")
    shutil.copy(sqlite_template, folder / "penstock.db")
    database = Database(f"sqlite:///{folder / 'penstock.db'}")
    with pytest.MonkeyPatch.context() as patch, Service(database, folder / "home") as service:
        patch.setattr(starting, "start_ingest", Starter(service))
        fill(service)
        yield service
    database.close()


class Starter:
    """A Prefect whose workers give up at once: a run that never ends is told of for ever."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def __call__(self, run: Run) -> str:
        abort_run(self.service.database, self.service.app.queue, run.id, reason="no worker")
        return "a flow run"


def fill(service: Service) -> None:
    """A node that is ready, a dead letter, jobs that wait, and an ended run."""
    service.steps.on(Stage.EXTRACT, "dead", *[Fault(ErrorClass.TIMEOUT, "too long")] * 2)
    service.add(extract=True)
    service.add(make_text("dead"), extract=True)
    service.work()
    service.add(extract=True)
    service.post("/runs", {"source": "https://careers.example.com/"}, 202)


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_whatever_is_sent_is_answered_as_the_document_says(
    service: Service, mode: GenerationMode, subtests: pytest.Subtests
) -> None:
    document = schemathesis.openapi.from_asgi("/openapi.json", service.web)
    for found in document.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        with subtests.test(operation=operation.label):
            send_examples(service, operation.as_strategy(generation_mode=mode))


def send_examples(service: Service, cases: SearchStrategy[Any]) -> None:
    # What fails is told as it is: making it smaller would take minutes.
    @settings(
        max_examples=EXAMPLES, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(case=cases)
    def send(case: Any) -> None:
        place(case, service)
        response = case.call()
        case.validate_response(response, checks=[CHECKS.get_one(name) for name in CHECKED])
        if response.status_code >= 400:
            assert response.headers["content-type"] == ["application/problem+json"]
            assert response.json().keys() >= {"type", "title", "status", "detail"}

    with suppress(Unsatisfiable):
        # Nothing wrong can be sent where nothing is asked for.
        send()


def place(case: Any, service: Service) -> None:
    """Half of what is asked about is there."""
    known = {"node_id": service.items()[0].node_id, "job_id": 2, "run_id": 1}
    for name, value in list((case.path_parameters or {}).items()):
        if name in known and len(str(value)) % 2:
            case.path_parameters[name] = known[name]


def test_every_route_is_in_the_document(service: Service) -> None:
    paths = service.web.openapi()["paths"]
    described = {f"{method.upper()} {path}" for path, item in paths.items() for method in item}

    assert described == routes_of(service.web) - OPEN | {"GET /health", "GET /readyz"}
