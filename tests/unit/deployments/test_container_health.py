"""The health check of the image: whom it asks, and what it makes of the answer."""

import pytest

from entrypoints.cli.health import HealthServer
from entrypoints.container_health import find_address, find_fault
from penstock.local.processes import free_port

PYTHON, PENSTOCK = "/penstock/.venv/bin/python", "/penstock/.venv/bin/penstock"
PREFECT = "/penstock/.venv/bin/prefect"


@pytest.mark.parametrize(
    ("command", "environment", "address"),
    [
        ([PYTHON, PENSTOCK, "serve", "--host", "0.0.0.0"], {}, ":8000/health"),
        ([PYTHON, PENSTOCK, "serve", "--port", "9000"], {}, ":9000/health"),
        (["/sbin/docker-init", "--", PENSTOCK, "serve", "--port=9001"], {}, ":9001/health"),
        ([PYTHON, PENSTOCK, "worker"], {}, ":8080/health"),
        ([PYTHON, PENSTOCK, "worker"], {"EXTRACTION_HEALTHCHECK_PORT": "81"}, ":81/health"),
        ([PYTHON, PENSTOCK, "worker"], {"EXTRACTION_HEALTHCHECK_PORT": "0"}, None),
        ([PYTHON, PREFECT, "server", "start"], {}, ":4200/api/health"),
        ([PYTHON, PREFECT, "server", "start"], {"PREFECT_SERVER_API_PORT": "42"}, ":42/api/health"),
        ([PYTHON, PREFECT, "worker", "start", "--pool", "penstock"], {}, None),
        ([PYTHON, PREFECT, "worker", "start", "--with-healthcheck"], {}, ":8080/health"),
        ([PYTHON, "-m", "prefect.engine"], {}, None),
        (["sh", "-c", "penstock migrate && python -m deployments.install"], {}, None),
    ],
)
def test_the_command_of_a_container_says_whom_to_ask(
    command: list[str], environment: dict[str, str], address: str | None
) -> None:
    expected = None if address is None else f"http://127.0.0.1{address}"
    assert find_address(command, environment) == expected


@pytest.mark.full_suite
def test_a_worker_that_cannot_work_is_unhealthy_with_its_reason() -> None:
    faults: list[str] = []
    with HealthServer(0, lambda: faults[0] if faults else None, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.port}/health"
        assert find_fault(url) is None
        faults.append("the database was migrated")
        found = find_fault(url)
    assert found is not None
    assert "503" in found
    assert "the database was migrated" in found


@pytest.mark.full_suite
def test_nothing_that_answers_is_unhealthy() -> None:
    assert find_fault(f"http://127.0.0.1:{free_port()}/health") is not None
