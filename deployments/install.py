"""Sets a Prefect server up for Penstock, from nothing or again: `python -m deployments.install`."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
from prefect.settings import get_current_settings

from deployments.automations import install_automations
from deployments.model_limit import install_model_limit
from deployments.pools import install_pool
from deployments.register import register_blocks
from penstock.errors import PenstockError, ServiceError, UsageError
from penstock.local.prefect_server import REFUSED_STATUSES, describe_refusal
from penstock.settings import mask_url

ROOT = Path(__file__).parent.parent
# Variables that deployments/prefect-docker.yaml reads.
_ASKED_BY_DOCKER = ("IMAGE", "PENSTOCK_RAW_STORE")


def install(kind: str = "process") -> Iterator[str]:
    """Pool and queues, limit of model calls, deployments, blocks, automations; what was done.

    `kind`: of the work pool, if it has to be made: process, docker, kubernetes, ecs.
    """
    file = _prefect_file(kind)
    yield from install_pool(kind)
    yield install_model_limit()
    yield from deploy_all(file)
    for slug in register_blocks():
        yield f"registered block type {slug!r}"
    # Last: they refer to deployments.
    yield from install_automations()


def _prefect_file(kind: str) -> str:
    if kind != "docker":
        return "prefect.yaml"
    missing = [name for name in _ASKED_BY_DOCKER if not os.environ.get(name)]
    if missing:
        raise UsageError(
            f"the deployments for Docker need {' and '.join(missing)} in the environment: IMAGE is "
            "the image of the Dockerfile, PENSTOCK_RAW_STORE an s3://bucket/prefix, since "
            "containers share no folder"
        )
    return "deployments/prefect-docker.yaml"


def deploy_all(file: str = "prefect.yaml") -> Iterator[str]:
    """Make what the file describes; only Prefect's own command reads it."""
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    command += ["--prefect-file", file]
    environment = {**os.environ, "PWD": str(ROOT)}  # prefect.yaml asks for it
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ServiceError(f"prefect deploy --all failed:\n{done.stdout}\n{done.stderr}")
    for line in done.stdout.splitlines():
        if "successfully created with id" in line:
            yield f"deployed {line.partition(chr(39))[2].partition(chr(39))[0]}"


def _explain(error: httpx.HTTPError) -> str:
    response = getattr(error, "response", None)
    if response is not None and response.status_code in REFUSED_STATUSES:
        return describe_refusal()
    address = mask_url(str(get_current_settings().api.url))
    return (
        f"the Prefect server at {address} cannot be used ({type(error).__name__}: "
        f"{mask_url(str(error))}): is it running, and is PREFECT_API_URL its address?"
    )


if __name__ == "__main__":
    try:
        for line in install(*sys.argv[1:2]):
            print(line, flush=True)  # noqa: T201 - this is a command
    except PenstockError as error:
        sys.exit(f"error: {error}")
    except httpx.HTTPError as error:
        sys.exit(f"error: {_explain(error)}")
