"""A client of the HTTP API: typed, synchronous, patient when the server asks for patience."""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import httpx

from penstock.client.errors import ApiError, Busy
from penstock.client.runs import RunsClient
from penstock.client.values import AddedNode, BatchOutcome, Node, SearchHit

LOOK_SECONDS = 0.25


class Client:
    """`Client("http://127.0.0.1:8000", token="…")`; close it, or use it in a `with` block.

    A call that the server has no room for is repeated as it asks, for at most `patience_seconds`.
    """

    def __init__(
        self,
        base_url: str,
        token: str | None = None,
        *,
        tenant_id: str | None = None,
        timeout_seconds: float = 30.0,
        patience_seconds: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._tenant_id = tenant_id
        self._patience_seconds = patience_seconds
        self._http = httpx.Client(
            base_url=base_url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=timeout_seconds,
            transport=transport,
        )
        self.runs = RunsClient(self.request, self._tenant)

    def add(
        self,
        text: str | None = None,
        *,
        classes: Sequence[str] = (),
        props: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        payload_ref: str | None = None,
        profile: str | None = None,
        extract: bool | None = None,
        extract_before_embed: bool | None = None,
        idempotency_key: str | None = None,
    ) -> AddedNode:
        """Add one node; its text is `text`, or what `props` or `payload_ref` hold."""
        body = {
            "classes": list(classes),
            "props": {**(props or {}), **({} if text is None else {"text": text})},
            "metadata": dict(metadata or {}),
            "payload_ref": payload_ref,
            "profile": profile,
            "extract": extract,
            "extract_before_embed": extract_before_embed,
            "tenant_id": self._tenant_id,
        }
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return AddedNode.of(self.request("POST", "/nodes", json=body, headers=headers))

    def add_batch(
        self, nodes: Iterable[Mapping[str, Any]], *, continue_on_error: bool = False
    ) -> BatchOutcome:
        """Add many nodes, each as `POST /nodes` takes it; all or none, unless told otherwise."""
        body = {
            "nodes": [dict(node) for node in nodes],
            "continue_on_error": continue_on_error,
            "tenant_id": self._tenant_id,
        }
        results = self.request("POST", "/nodes/batch", json=body)["results"]
        return BatchOutcome(
            {one["index"]: AddedNode.of(one) for one in results if one["error"] is None},
            {one["index"]: one["error"] for one in results if one["error"] is not None},
        )

    def upload(
        self, *paths: str | Path, profile: str | None = None, extract: bool | None = None
    ) -> list[AddedNode]:
        """Upload files; one node each, in order."""
        form = {"profile": profile, "tenant_id": self._tenant_id}
        if extract is not None:
            form["extract"] = "true" if extract else "false"
        files = [("files", (Path(path).name, Path(path).read_bytes())) for path in paths]
        data = {name: value for name, value in form.items() if value is not None}
        results = self.request("POST", "/upload", data=data, files=files)["results"]
        return [AddedNode.of(one) for one in results]

    def get(self, node_id: str) -> Node:
        return Node.of(self.request("GET", f"/nodes/{node_id}", params=self._tenant()))

    def delete(self, node_id: str) -> None:
        self.request("DELETE", f"/nodes/{node_id}", params=self._tenant())

    def refresh(self, node_id: str) -> int:
        """Have a node done again; the id of the job."""
        answer = self.request("POST", f"/nodes/{node_id}/refresh", params=self._tenant())
        return int(answer["job_id"])

    def wait(self, *node_ids: str, timeout_seconds: float = 60.0) -> list[Node]:
        """Wait until nothing is under way for these nodes, whatever came of it."""
        deadline = time.monotonic() + timeout_seconds
        return [self._wait_for(node_id, deadline) for node_id in node_ids]

    def wait_until_up(self, timeout_seconds: float = 30.0) -> None:
        """Wait until the server answers."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                self.request("GET", "/health")
                return
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_SECONDS)

    def search(
        self,
        query: str,
        *,
        mode: Literal["hybrid", "text", "vector"] = "hybrid",
        source: str | None = None,
        profile: str | None = None,
        fields: Mapping[str, str] | None = None,
        limit: int = 10,
    ) -> list[SearchHit]:
        """Documents, best first."""
        params: dict[str, Any] = {
            "q": query,
            "mode": mode,
            "source": source,
            "profile": profile,
            "limit": limit,
            "field": [f"{name}={value}" for name, value in (fields or {}).items()],
            **self._tenant(),
        }
        given = {name: value for name, value in params.items() if value is not None}
        return [SearchHit.of(hit) for hit in self.request("GET", "/search", params=given)["hits"]]

    def request(self, method: str, path: str, **options: Any) -> Any:
        """Any call: its answer, or ApiError. Busy servers are asked again as they wish."""
        deadline = time.monotonic() + self._patience_seconds
        while True:
            try:
                return _read(self._http.request(method, path, **options))
            except Busy as busy:
                if time.monotonic() + busy.retry_after_seconds > deadline:
                    raise
                time.sleep(busy.retry_after_seconds)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _tenant(self) -> dict[str, str]:
        return {} if self._tenant_id is None else {"tenant_id": self._tenant_id}

    def _wait_for(self, node_id: str, deadline: float) -> Node:
        while True:
            node = self.get(node_id)
            if node.settled:
                return node
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"node {node_id} is still under way (extraction {node.extraction_status}, "
                    f"embedding {node.embedding_status}): does a worker run?"
                )
            time.sleep(LOOK_SECONDS)


def _read(response: httpx.Response) -> Any:
    if response.is_success:
        return response.json() if response.content else None
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    detail = str(problem.get("detail") or response.text[:200] or response.reason_phrase)
    if response.status_code in (429, 503):
        wait = response.headers.get("retry-after", "")
        seconds = float(wait) if wait.isdigit() else 1.0
        raise Busy(response.status_code, detail, problem, seconds)
    raise ApiError(response.status_code, detail, problem)
