"""The path of docs/howto/upgrade.md, from this version to one with another schema."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.client.schemas.objects import FlowRun

from penstock.local.postgres import PostgresServer
from penstock.local.processes import wait_until
from penstock.runs.lifecycle import run_of_flow
from penstock.store.migration import HEAD, current_revision
from penstock.testing import Reply
from tests.docker_context import copy_context
from tests.e2e.prefect_installation import Installation, open_installation
from tests.faults.scenarios.audit import audit_run
from tests.pages import ROOT, Page

pytestmark = pytest.mark.timeout(600)

NEXT = "9000"
_REVISION = f'''"""A table of the next version."""

import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{HEAD}"


def upgrade() -> None:
    op.create_table("penstocks", sa.Column("id", sa.Integer(), primary_key=True))
'''
_MODULES = {"penstock": "entrypoints.cli.main", "prefect": "prefect"}


@pytest.fixture
def installed(tmp_path: Path, postgres: PostgresServer) -> Iterator[Installation]:
    with open_installation(tmp_path, postgres, "upgraded") as found:
        found.start_worker()
        yield found


@pytest.fixture
def next_version(tmp_path: Path) -> Path:
    """The project with one more revision."""
    folder = tmp_path / "next"
    folder.mkdir()
    copy_context(ROOT, folder)
    store = folder / "penstock" / "store"
    (store / "migrations" / "versions" / f"{NEXT}_penstocks.py").write_text(_REVISION)
    text = (store / "migration.py").read_text()
    (store / "migration.py").write_text(text.replace(f'HEAD = "{HEAD}"', f'HEAD = "{NEXT}"'))
    return folder


def commands_of_the_page() -> list[str]:
    text = Page(ROOT / "docs" / "howto" / "upgrade.md").text
    block = text.partition("## The path")[2].partition("```bash\n")[2].partition("```")[0]
    return [re.sub(r"\s+# .*$", "", line) for line in block.splitlines()]


def run(installed: Installation, folder: Path, line: str) -> tuple[int, str]:
    """One line of the page, typed in the folder of a version: its exit code and what it says."""
    program, *words = shlex.split(line)
    command = words if program == "python" else ["-m", _MODULES[program], *words]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**installed.environment, "PYTHONPATH": str(folder), "PWD": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def audit(installed: Installation, flow_run: FlowRun, documents: int) -> list[str]:
    found = run_of_flow(installed.app.database, str(flow_run.id))
    assert found is not None
    return audit_run(installed.app.database, found.id, documents).problems


def has_begun(installed: Installation, flow_run: FlowRun) -> bool:
    return run_of_flow(installed.app.database, str(flow_run.id)) is not None


def test_pause_drain_migrate_and_resume_lose_nothing(
    installed: Installation, next_version: Path
) -> None:
    pause, check, migrate, install, resume = commands_of_the_page()
    database = installed.app.database
    # Longer than the commands take until one of them is refused, in two rounds of calls.
    installed.models.always(None, Reply().after(20.0))
    begun = installed.deployment_run(
        "ingest/ingest", source=str(installed.write_documents("begun", 20)), profile="document"
    )
    assert wait_until(lambda: has_begun(installed, begun), 120), installed.logs()

    assert run(installed, next_version, pause)[0] == 0
    waiting = installed.deployment_run(
        "ingest/ingest", source=str(installed.write_documents("waiting", 3)), profile="document"
    )
    code, said = run(installed, next_version, check)
    assert (code, f"from revision {HEAD} to {NEXT}" in said) == (1, True), said
    code, said = run(installed, next_version, "penstock migrate")
    assert code == 1
    assert "workers use it" in said
    assert current_revision(database) == HEAD
    installed.models.always(None, Reply())

    code, said = run(installed, next_version, migrate)

    assert code == 0, said
    assert current_revision(database) == NEXT
    assert installed.wait_for_state(begun, "Completed", seconds=30) == "Completed"
    assert audit(installed, begun, 20) == []
    assert installed.state_of(waiting) in ("Scheduled", "Late")

    # A worker of the old version, started by mistake.
    code, said = run(installed, ROOT, "penstock worker --drain")
    assert code == 1
    assert "written by a newer Penstock" in said
    assert "Traceback" not in said

    installed.dismiss()
    assert run(installed, next_version, install)[0] == 0
    installed.environment = {**installed.environment, "PYTHONPATH": str(next_version)}
    installed.start_worker()
    assert run(installed, next_version, resume)[0] == 0
    installed.wait_for_state(waiting, "Completed")
    assert audit(installed, waiting, 3) == []
