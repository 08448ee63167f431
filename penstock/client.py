"""A typed, synchronous client of the HTTP API.

from penstock import Client

with Client("http://127.0.0.1:8000") as client:
    node = client.add("Jane Doe, staff engineer …", classes=["Resume"], extract=True)
    [done] = client.wait(node.id)
    print(done.props["primary_skills"], client.search("staff engineer")[0].title)
    run = client.start_run("https://careers.example.com/")
    print(client.wait_run(run.run_id).counts)
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

import httpx

from penstock.errors import PenstockError, ServiceError
from penstock.local.joining import installation_home
from penstock.retry import parse_retry_after
from penstock.settings import load_settings


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
    profile_reason: str | None = None
    """Why it has this profile."""
    extraction_confidence: float | None = None
    needs_review: bool = False
    review_reasons: list[str] = field(default_factory=list)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """For each field, its confidence and the places in the text that support its values."""
    corrections: list[dict[str, Any]] = field(default_factory=list)
    """What people corrected or accepted: field, value, author, reason, and whether it holds."""

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
    passage: Mapping[str, Any] = field(default_factory=dict)
    """The part of the document that speaks for it: text, start, end, page, heading_path."""


@dataclass(frozen=True, slots=True)
class FoundPassage(_Value):
    """A passage that was found, and where it stands: from `start` to `end` in the text of the node,
    on `page` if the document has pages, below the headings of `heading_path`."""

    node_id: str
    title: str
    url: str | None
    score: float
    text: str
    start: int
    end: int
    page: int | None = None
    heading_path: Sequence[str] = ()


_ACTIVE = {"pending", "initializing", "ingesting"}


@dataclass(frozen=True, slots=True)
class Run(_Value):
    """A run as it stands: documents by status, what it cost, and why it stopped."""

    run_id: int
    status: str
    source: str
    tenant: str
    created_at: str
    started_at: str | None = None
    finished_at: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    changes: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    tokens: int = 0
    cost_usd: float = 0.0
    flow_run_id: str | None = None
    paused_reason: str | None = None
    error: str | None = None

    @property
    def has_ended(self) -> bool:
        """One that is paused has not: it goes on when it is resumed."""
        return self.status not in _ACTIVE


@dataclass(frozen=True, slots=True)
class LogLine(_Value):
    """A line of a run's log."""

    seq: int
    at: str
    level: str
    stage: str
    message: str
    document: str | None = None
    node_id: str | None = None


POLL_SECONDS = 0.25
RUN_POLL_SECONDS = 0.5


class Client:
    """The HTTP API as methods; close it, or use it in a `with` block.

    `base_url`: where the API runs, for example `http://127.0.0.1:8000`. None for that of the
    `penstock up` of this home (PENSTOCK_HOME); ServiceError when it does not run.
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
        base_url: str | None = None,
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
            base_url=base_url or _local_api(),
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=timeout_seconds,
            transport=transport,
        )

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

    def review(
        self,
        *,
        source: str | None = None,
        profile: str | None = None,
        reason: str | None = None,
        limit: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """The nodes that need review, most valuable first, each a dictionary with its fields.

        `source` and `profile` keep those of one, `reason` those that need it for one, such as
        `missing` or `missing:title`. `limit` is the most nodes to go through.

            for one in client.review(reason="missing"):
                client.correct(one["id"], {"title": ask_for_title(one)})
        """
        filters = {"source": source, "profile": profile, "reason": reason, **self._tenant()}
        params = {name: value for name, value in filters.items() if value is not None}
        return islice(self._pages("/review", params), limit)

    def correct(
        self, node_id: str, fields: Mapping[str, Any], *, reason: str | None = None
    ) -> Node:
        """Give `fields` of the node `node_id` their right values, for as long as its text stays;
        the node as it is then. `reason` is kept beside them."""
        body = {"fields": dict(fields), "reason": reason}
        path = f"/nodes/{node_id}/fields"
        return Node.of(self.request("PATCH", path, json=body, params=self._tenant()))

    def accept(self, node_id: str, *, reason: str | None = None) -> Node:
        """Say that the node `node_id` is right as it is; `reason` is kept beside it."""
        path = f"/nodes/{node_id}/accept"
        body = {"reason": reason}
        return Node.of(self.request("POST", path, json=body, params=self._tenant()))

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
        needs_review: bool | None = None,
        limit: int = 10,
    ) -> list[SearchHit]:
        """Nodes that match `query`, the best first, at most `limit`.

        `mode`: `text` for keywords, `vector` for meaning, `hybrid` for both. `source` and `profile`
        narrow the search, and so do `fields`: extracted fields that equal a value, or lists that
        hold it, in any case. `needs_review`: only nodes that need review, or none of them.

            client.search("warehouse", fields={"employment_type": "full-time"}, limit=3)
        """
        found = self._find("/search", query, mode, source, profile, fields, needs_review, limit)
        return [SearchHit.of(hit) for hit in found["hits"]]

    def passages(
        self,
        query: str,
        *,
        mode: Literal["hybrid", "text", "vector"] = "hybrid",
        source: str | None = None,
        profile: str | None = None,
        fields: Mapping[str, str] | None = None,
        needs_review: bool | None = None,
        limit: int = 10,
    ) -> list[FoundPassage]:
        """The best passage of each of the best documents for `query`, best first, at most `limit`,
        to be given to a model and cited. `mode`, `source`, `profile`, `fields` and `needs_review`
        are as in `search`.

            for one in client.passages("Who repairs pumps?", limit=5):
                print(one.title, one.page, one.text)
        """
        found = self._find("/passages", query, mode, source, profile, fields, needs_review, limit)
        return [FoundPassage.of(one) for one in found["passages"]]

    def _find(
        self,
        path: str,
        query: str,
        mode: str,
        source: str | None,
        profile: str | None,
        fields: Mapping[str, str] | None,
        needs_review: bool | None,
        limit: int,
    ) -> Any:
        params: dict[str, Any] = {
            "q": query,
            "mode": mode,
            "source": source,
            "profile": profile,
            "needs_review": needs_review,
            "limit": limit,
            "field": [f"{name}={value}" for name, value in (fields or {}).items()],
            **self._tenant(),
        }
        given = {name: value for name, value in params.items() if value is not None}
        return self.request("GET", path, params=given)

    def start_run(
        self,
        source: str,
        *,
        profile: str | None = None,
        force: bool = False,
        documents: Sequence[str] = (),
    ) -> Run:
        """Start a run of a source and return it as it stands, without waiting for its end.

        `source` is the name of a source of the tenant, or a URL. `profile` is what is extracted,
        instead of the source's own. `force` processes unchanged documents too; `documents` names
        some, by external id, URL or node id, that are processed although they are unchanged.

        Raises ApiError with status 409 when another run of the source is active.
        """
        body = {"source": source, "profile": profile, "force": force, "documents": [*documents]}
        return Run.of(self.request("POST", "/runs", json=body | self._tenant()))

    def get_run(self, run_id: int) -> Run:
        """The run `run_id` as it stands; ApiError with status 404 if the tenant has none."""
        return Run.of(self.request("GET", f"/runs/{run_id}", params=self._tenant()))

    def list_runs(self, limit: int = 20) -> list[Run]:
        """The newest `limit` runs of the tenant, newest first."""
        found = self.request("GET", "/runs", params={"limit": limit, **self._tenant()})
        return [Run.of(one) for one in found]

    def wait_run(self, run_id: int, timeout_seconds: float = 600.0) -> Run:
        """Wait until the run `run_id` has ended, and return it.

        Raises TimeoutError if it has not within `timeout_seconds`, with the reason if it is paused.
        """
        deadline = time.monotonic() + timeout_seconds
        while not (run := self.get_run(run_id)).has_ended:
            if time.monotonic() > deadline:
                why = f", paused: {run.paused_reason}" if run.paused_reason else ""
                raise TimeoutError(f"run {run_id} is still {run.status}{why}")
            time.sleep(RUN_POLL_SECONDS)
        return run

    def watch(self, run_id: int, after: int = 0) -> Iterator[LogLine]:
        """The lines of the log of the run `run_id` as they are written, until it has ended.

        `after`: go on behind the line of this number (`LogLine.seq`).

            for line in client.watch(run.run_id):
                print(line.stage, line.message)
        """
        while True:
            # Asked first: what is written before the end is found by the reads after it.
            has_ended = self.get_run(run_id).has_ended
            for line in self.logs(run_id, after):
                after = line.seq
                yield line
            if has_ended:
                return
            time.sleep(RUN_POLL_SECONDS)

    def logs(self, run_id: int, after: int = 0) -> Iterator[LogLine]:
        """The lines of the log of the run `run_id` so far, from the one behind number `after`."""
        while True:
            params = {"after": after, **self._tenant()}
            page = self.request("GET", f"/runs/{run_id}/logs", params=params)
            if not page["lines"]:
                return
            yield from map(LogLine.of, page["lines"])
            after = page["next_after"]

    def abort(self, run_id: int) -> Run:
        """End the run `run_id` now, and return it; what is not done stays counted as pending."""
        return Run.of(self.request("POST", f"/runs/{run_id}/abort", params=self._tenant()))

    def resume(self, run_id: int) -> Run:
        """Have a worker go on with the run `run_id`, which was paused or interrupted.

        Raises ApiError with status 409 when it has ended, or a worker has it already.
        """
        return Run.of(self.request("POST", f"/runs/{run_id}/resume", params=self._tenant()))

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

    def _pages(self, path: str, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The items of all pages, each asked for when it is needed."""
        while True:
            page = self.request("GET", path, params=params)
            yield from page["items"]
            if page["next"] is None:
                return
            params = params | {"after": page["next"]}

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


def _local_api() -> str:
    home = installation_home(load_settings())
    state = home.find()
    for part in state.parts if state else ():
        if part.name == "api" and part.address:
            return part.address
    raise ServiceError(
        f"no `penstock up` runs in {home.folder}: start it, or name the address of an API"
    )


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
