"""The health check of the image: asks the server that a container was started for.

`python -m entrypoints.container_health` ends with 0 if that server answers, with 1 if it does not.
One image runs every part, so the command of the container says which one it is. A container that
is no server, as one of a flow run, is healthy while it runs.
"""

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

ANSWER_SECONDS = 5.0
_COMMAND = Path("/proc/1/cmdline")


def main() -> int:
    command = _COMMAND.read_text().rstrip("\0").split("\0")
    url = find_address(command, os.environ)
    fault = None if url is None else find_fault(url)
    if fault is not None:
        print(f"{url} does not answer as it should: {fault}", file=sys.stderr)  # noqa: T201
    return 0 if fault is None else 1


def find_address(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Where the server that this command starts tells its health; None if it starts none."""
    words = [Path(command_word).name for command_word in command]
    if _runs(words, "penstock", "serve"):
        return _address(_option(command, "--port") or "8000", "/health")
    if _runs(words, "penstock", "worker"):
        return _address(environment.get("EXTRACTION_HEALTHCHECK_PORT", "8080"), "/health")
    if _runs(words, "prefect", "server"):
        port = _option(command, "--port") or environment.get("PREFECT_SERVER_API_PORT", "4200")
        return _address(port, "/api/health")
    if _runs(words, "prefect", "worker") and "--with-healthcheck" in words:
        return _address(environment.get("PREFECT_WORKER_WEBSERVER_PORT", "8080"), "/health")
    return None


def find_fault(url: str) -> str | None:
    """What is wrong with the answer; None if nothing is."""
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS):
            return None
    except urllib.error.HTTPError as error:
        with error:
            return f"{error}: {error.read().decode(errors='replace')}"
    except OSError as error:
        return str(error)


def _runs(words: Sequence[str], program: str, command: str) -> bool:
    """Whether one follows the other, also behind an init process or an interpreter."""
    return (program, command) in pairwise(words)


def _option(command: Sequence[str], name: str) -> str | None:
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _address(port: str, path: str) -> str | None:
    """Port 0 switches a worker's health endpoint off."""
    return None if port == "0" else f"http://127.0.0.1:{port}{path}"


if __name__ == "__main__":
    sys.exit(main())
