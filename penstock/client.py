"""A typed, synchronous client of the HTTP API.

from penstock import Client

with Client("http://127.0.0.1:8000") as client:
    node = client.add("Jane Doe, staff engineer …", classes=["Resume"], extract=True)
    [done] = client.wait(node.id)
    print(done.props["primary_skills"], client.search("staff engineer")[0].title)
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self

import httpx

from penstock.errors import PenstockError
from penstock.retry import parse_retry_after


class ApiError(PenstockError):
    """The API refused a request.

    `status` is the HTTP status, `problem` the body as a problem document (RFC 9457), `{}` if it is
    none. The message holds the problem's detail.
    """

    def __init__(self, status: int, detail: str, problem: dict[str, object]) -> None:
        super().__init__(f"HTTP {status}: {detail}")
        self.status = status
        self.problem = problem


class Busy(ApiError):
    """The API has no room for a request, or cannot serve it now: 429 or 503.

    `retry_after_seconds` is how long it asks to wait.
    """

    def __init__(
        self, status: int, detail: str, problem: dict[str, object], retry_after_seconds: float
    ) -> None:
        super().__init__(status, detail, problem)
        self.retry_after_seconds = retry_after_seconds


ACTIVE = ("pending", "initializing", "ingesting")
RUN_POLL_SECONDS = 0.5


class RunsClient:
    """`client.runs`: starts, lists, shows, waits for and aborts runs, and reads their logs.

    A run is a dictionary as `GET /runs/{id}` answers it. Every method raises ApiError when the API
    refuses, for example with status 404 for a run that the tenant does not have.
    """

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
        """Start a run of a source and return it as it stands, without waiting for its end.

        `source` is the name of a source of the tenant. `profile` is what is extracted, instead of
        the source's own. `force` processes unchanged documents too; `documents` names some, by
        external id, URL or node id, that are processed although they are unchanged.

        Raises ApiError with status 409 when another run of the source is active.
        """
        body = {"source": source, "profile": profile, "force": force, "documents": [*documents]}
        return dict(self._request("POST", "/runs", json=body | self._tenant()))

    def list(self, limit: int = 20) -> "list[dict[str, Any]]":
        """The newest runs of the tenant, newest first."""
        return [*self._request("GET", "/runs", params={"limit": limit, **self._tenant()})]

    def get(self, run_id: int) -> dict[str, Any]:
        """One run with its counts, stages and spending."""
        return dict(self._request("GET", f"/runs/{run_id}", params=self._tenant()))

    def abort(self, run_id: int) -> dict[str, Any]:
        """End a run now and return it; what is not done stays counted as pending."""
        return dict(self._request("POST", f"/runs/{run_id}/abort", params=self._tenant()))

    def wait(self, run_id: int, timeout_seconds: float = 600.0) -> dict[str, Any]:
        """Wait until a run has ended, and return it. Raises TimeoutError if it has not in time."""
        deadline = time.monotonic() + timeout_seconds
        while (run := self.get(run_id))["status"] in ACTIVE:
            if time.monotonic() > deadline:
                raise TimeoutError(f"run {run_id} is still {run['status']}")
            time.sleep(RUN_POLL_SECONDS)
        return run

    def logs(self, run_id: int, after: int = 0) -> Iterator[dict[str, Any]]:
        """The lines of a run's log so far, in sequence, from the one behind the number `after`."""
        while True:
            params = {"after": after, **self._tenant()}
            page = self._request("GET", f"/runs/{run_id}/logs", params=params)
            if not page["lines"]:
                return
            yield from page["lines"]
            after = page["next_after"]


@dataclass(frozen=True, slots=True)
class _Value:
    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """From an answer; fields that a newer server adds are left out."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in answer.items() if name in known})


@dataclass(frozen=True, slots=True)
class AddedNode(_Value):
    """A node that was accepted, and the ids of the jobs that process it."""

    id: str
    embedding_status: str
    job_id: int | None = None
    extraction_status: str | None = None
    extraction_job_id: int | None = None


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The accepted nodes of a batch, and the errors of the others, each by its place in it."""

    nodes: Mapping[int, AddedNode]
    errors: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Node(_Value):
    """A node with its text, its extracted fields (in `props`) and the status of its stages."""

    id: str
    tenant_id: str
    title: str | None
    text: str
    props: Mapping[str, Any]
    metadata: Mapping[str, Any]
    classes: list[str] = field(default_factory=list)
    profile: str | None = None
    url: str | None = None
    source: str | None = None
    extraction_status: str | None = None
    extraction_error: str | None = None
    embedding_status: str | None = None
    embedding_error: str | None = None
    has_embedding: bool = False

    @property
    def settled(self) -> bool:
        """Whether no stage is queued or running."""
        return {self.extraction_status, self.embedding_status}.isdisjoint(_UNDER_WAY)


_UNDER_WAY = {"queued", "processing", "pending_extraction"}


@dataclass(frozen=True, slots=True)
class SearchHit(_Value):
    """One search result; in the snippet, words that match stand between <mark> and </mark>."""

    id: str
    title: str
    url: str | None
    score: float
    snippet: str


POLL_SECONDS = 0.25


class Client:
    """The HTTP API as methods; close it, or use it in a `with` block.

    `base_url`: where the API runs, for example `http://127.0.0.1:8000`.
    `token`: a bearer token, where the API asks for one.
    `tenant_id`: the tenant of all calls; None for the token's own, or the server's default.
    `timeout_seconds`: how long one request may take.
    `patience_seconds`: a request that the server has no room for (429, 503) is repeated as it asks,
    for this long at most; then `Busy` is raised.
    `transport`: another httpx transport, for tests.

    Every method raises ApiError when the API refuses, and httpx.TransportError when it cannot be
    reached.
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
        """Add one node, and queue its processing.

        Its text is `text`, or `props["text"]`, or what the file or object at `payload_ref` holds;
        `metadata` and the other `props` are stored with it.
        `classes` and `profile` decide what is extracted. `extract` and `extract_before_embed`
        override EXTRACTION_ENABLED and EXTRACTION_MODE for this node. A second call with the same
        `idempotency_key` adds nothing and returns what the first one did.
        """
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
        """Add many `nodes`, each a dictionary as `POST /nodes` takes it.

        All or none are added, unless `continue_on_error` is set. At most NODE_BATCH_MAX at once.

            client.add_batch([{"props": {"text": "…"}, "classes": ["Resume"]}])
        """
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
        """Upload the files at these `paths`; one node for each, in order.

        `profile` is what is extracted, `extract` overrides EXTRACTION_ENABLED. Raises OSError if a
        file cannot be read.
        """
        form = {"profile": profile, "tenant_id": self._tenant_id}
        if extract is not None:
            form["extract"] = "true" if extract else "false"
        files = [("files", (Path(path).name, Path(path).read_bytes())) for path in paths]
        data = {name: value for name, value in form.items() if value is not None}
        results = self.request("POST", "/upload", data=data, files=files)["results"]
        return [AddedNode.of(one) for one in results]

    def get(self, node_id: str) -> Node:
        """The node `node_id` as it stands."""
        return Node.of(self.request("GET", f"/nodes/{node_id}", params=self._tenant()))

    def delete(self, node_id: str) -> None:
        """Delete the node `node_id` with its vectors, its jobs and its raw bytes."""
        self.request("DELETE", f"/nodes/{node_id}", params=self._tenant())

    def refresh(self, node_id: str) -> int:
        """Process the node `node_id` again although it is unchanged; the id of the job."""
        answer = self.request("POST", f"/nodes/{node_id}/refresh", params=self._tenant())
        return int(answer["job_id"])

    def wait(self, *node_ids: str, timeout_seconds: float = 60.0) -> list[Node]:
        """Wait until no stage of the nodes `node_ids` is queued or running, and return them.

        Raises TimeoutError if that takes longer than `timeout_seconds` for all of them.
        """
        deadline = time.monotonic() + timeout_seconds
        return [self._wait_for(node_id, deadline) for node_id in node_ids]

    def wait_until_up(self, timeout_seconds: float = 30.0) -> None:
        """Wait until the server answers; httpx.TransportError if it does not within
        `timeout_seconds`."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                self.request("GET", "/health")
                return
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)

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
        """Nodes that match `query`, the best first, at most `limit`.

        `mode`: `text` for keywords, `vector` for meaning, `hybrid` for both. `source` and `profile`
        narrow the search, and so do `fields`: extracted fields that equal a value, or lists that
        hold it, in any case.

            client.search("warehouse", fields={"employment_type": "full-time"}, limit=3)
        """
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
        """Any request by its `method` and `path`: its answer as JSON, None if it has no body.

        `options` are those of `httpx.Client.request`. Raises ApiError, and Busy when the server has
        no room for longer than `patience_seconds`.
        """
        deadline = time.monotonic() + self._patience_seconds
        while True:
            try:
                return _read(self._http.request(method, path, **options))
            except Busy as busy:
                if time.monotonic() + busy.retry_after_seconds > deadline:
                    raise
                time.sleep(busy.retry_after_seconds)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
            time.sleep(POLL_SECONDS)


def _read(response: httpx.Response) -> Any:
    if response.is_success:
        return response.json() if response.content else None
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    detail = str(problem.get("detail") or response.text[:200] or response.reason_phrase)
    if response.status_code in (429, 503):
        seconds = parse_retry_after(response.headers)
        raise Busy(response.status_code, detail, problem, 1.0 if seconds is None else seconds)
    raise ApiError(response.status_code, detail, problem)
