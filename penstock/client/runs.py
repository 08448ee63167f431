"""Runs over the HTTP API."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

ACTIVE = ("pending", "initializing", "ingesting")
LOOK_SECONDS = 0.5


class RunsClient:
    """`client.runs`: start, list, show, wait for, abort, and read the log of runs."""

    def __init__(self, request: Callable[..., Any], tenant: Callable[[], dict[str, str]]) -> None:
        self._request = request
        self._tenant = tenant

    def start(
        self,
        source: str,
        *,
        profile: str | None = None,
        force: bool = False,
        documents: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Have a source ingested; the run as it stands."""
        body = {
            "source": source,
            "profile": profile,
            "force": force,
            "documents": list(documents),
            **self._tenant(),
        }
        return dict(self._request("POST", "/runs", json=body))

    def list(self, limit: int = 20) -> "list[dict[str, Any]]":
        return [*self._request("GET", "/runs", params={"limit": limit, **self._tenant()})]

    def get(self, run_id: int) -> dict[str, Any]:
        return dict(self._request("GET", f"/runs/{run_id}", params=self._tenant()))

    def abort(self, run_id: int) -> dict[str, Any]:
        return dict(self._request("POST", f"/runs/{run_id}/abort", params=self._tenant()))

    def wait(self, run_id: int, timeout_seconds: float = 600.0) -> dict[str, Any]:
        """Wait until a run has ended."""
        deadline = time.monotonic() + timeout_seconds
        while (run := self.get(run_id))["status"] in ACTIVE:
            if time.monotonic() > deadline:
                raise TimeoutError(f"run {run_id} is still {run['status']}")
            time.sleep(LOOK_SECONDS)
        return run

    def logs(self, run_id: int, after: int = 0) -> Iterator[dict[str, Any]]:
        """The lines of a run's log so far, in sequence."""
        while True:
            params = {"after": after, **self._tenant()}
            page = self._request("GET", f"/runs/{run_id}/logs", params=params)
            if not page["lines"]:
                return
            yield from page["lines"]
            after = page["next_after"]
