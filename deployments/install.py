"""Sets a Prefect server up for Penstock, from nothing or again: `python -m deployments.install`."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from deployments.automations import install_automations
from deployments.pools import install_pool
from deployments.register import register_blocks
from penstock.errors import ServiceError

ROOT = Path(__file__).parent.parent


def install(kind: str = "process") -> Iterator[str]:
    """Pool and queues, deployments, blocks, automations; what was done, as it is done.

    `kind`: of the work pool, if it has to be made: process, docker, kubernetes, ecs.
    """
    yield from install_pool(kind)
    yield from deploy_all()
    for slug in register_blocks():
        yield f"registered block type {slug!r}"
    # Last: they refer to deployments.
    yield from install_automations()


def deploy_all() -> Iterator[str]:
    """Make what prefect.yaml describes; only Prefect's own command reads that file."""
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    environment = {**os.environ, "PWD": str(ROOT)}  # prefect.yaml asks for it
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ServiceError(f"prefect deploy --all failed:\n{done.stdout}\n{done.stderr}")
    for line in done.stdout.splitlines():
        if "successfully created with id" in line:
            yield f"deployed {line.partition(chr(39))[2].partition(chr(39))[0]}"


if __name__ == "__main__":
    for line in install(*sys.argv[1:2]):
        print(line, flush=True)  # noqa: T201 - this is a command
