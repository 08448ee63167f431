"""What goes over the wire, in and out."""

import math
import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from penstock.crawl.fetch import check_reference
from penstock.crawl.urls import parse_url
from penstock.documents import Stage
from penstock.intake.nodes import NewNode
from penstock.operations.jobs import MOST_JOBS
from penstock.queue.items import ItemStatus

MOST_CLASSES = 50
# Far deeper than what people nest, and far from what a parser cannot follow any more.
DEEPEST = 50
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
# As the databases keep it.
Id = Annotated[int, Field(ge=1, le=2**63 - 1)]


def _usable_reference(reference: str) -> str:
    wrong = check_reference(reference) or _wrong_form(reference)
    if wrong:
        raise ValueError(wrong)
    return reference


def _wrong_form(reference: str) -> str | None:
    if reference.startswith("s3://"):
        named = re.fullmatch(r"s3://[A-Za-z0-9._-]{3,255}/.+", reference)
        return None if named else "write it as s3://bucket/key"
    if reference.startswith("file://"):
        return None if re.fullmatch(r"file:///[^\x00]+", reference) else "write it as file:///path"
    url = parse_url(reference)
    if url is None:
        return "it is not a valid URL"
    return (
        "give the URL without user and password: it is stored and shown" if url.userinfo else None
    )


def _storable(given: dict[str, Any]) -> dict[str, Any]:
    """JSON as every database holds it; Python reads more than that."""
    level: list[Any] = [given]
    for _ in range(DEEPEST):
        if any(isinstance(one, float) and not math.isfinite(one) for one in level):
            raise ValueError("numbers must be finite: JSON knows no NaN and no Infinity")
        level = [inner for one in level for inner in _inner(one)]
        if not level:
            return given
    raise ValueError(f"values may be nested {DEEPEST} deep at most")


def _inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


Values = Annotated[dict[str, Any], AfterValidator(_storable)]
Reference = Annotated[
    str, StringConstraints(min_length=1, max_length=4096), AfterValidator(_usable_reference)
]

_RESUME: dict[str, Any] = {
    "classes": ["Resume"],
    "props": {"name": "Ada Park", "resume_text": "Ada Park\nData engineer, eight years …"},
    "tenant_id": "default",
    "extract_before_embed": True,
}


class NodeIn(BaseModel):
    """A node to be made. Its text comes from `payload_ref`, else from the props text, resume_text,
    content, body or description."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_RESUME]})

    classes: list[Name] = Field([], max_length=MOST_CLASSES, description="Resume, JobPosting, …")
    props: Values = Field({}, description="Anything; some of it may be the text")
    payload_ref: Reference | None = Field(
        None, description="Where its bytes lie: s3://, http(s)://, or file:// below an allowed root"
    )
    metadata: Values = {}
    tenant_id: Name | None = Field(None, description="Whose; default: the token's")
    profile: Name | None = Field(None, description="Fields to extract; default: by classes")
    extract: bool | None = Field(None, description="Default: EXTRACTION_ENABLED")
    extract_before_embed: bool | None = Field(None, description="Default: EXTRACTION_MODE")

    @model_validator(mode="after")
    def _one_wish(self) -> "NodeIn":
        if self.extract is False and self.extract_before_embed:
            raise ValueError("extract_before_embed asks for the extraction that extract forbids")
        return self

    def as_new_node(self) -> NewNode:
        return NewNode(
            classes=self.classes,
            props=self.props,
            metadata=self.metadata,
            payload_ref=self.payload_ref,
            profile=self.profile,
            extract=self.extract,
            extract_before_embed=self.extract_before_embed,
        )


class NodeAccepted(BaseModel):
    """The node and the jobs that work on it."""

    id: str
    embedding_status: str = Field(examples=["queued", "pending_extraction", "ready"])
    job_id: int | None
    extraction_status: str | None
    extraction_job_id: int | None


class BatchIn(BaseModel):
    """Nodes to be made together: all or none, unless `continue_on_error`."""

    model_config = ConfigDict(extra="forbid")

    nodes: list[dict[str, Any]] = Field(min_length=1, examples=[[_RESUME]])
    continue_on_error: bool = Field(False, description="Make the others when some are wrong")
    tenant_id: Name | None = Field(None, description="Of nodes that name none")


class BatchResult(BaseModel):
    """What became of one node of a batch, at the same place."""

    index: int
    id: str | None = None
    embedding_status: str | None = None
    job_id: int | None = None
    extraction_status: str | None = None
    extraction_job_id: int | None = None
    error: str | None = None


class BatchAccepted(BaseModel):
    created: int
    failed: int
    results: list[BatchResult]


Why = Annotated[str, StringConstraints(max_length=2000, strip_whitespace=True)]


class CorrectionIn(BaseModel):
    """The right values of some fields of a node."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"fields": {"title": "Weir keeper"}, "reason": "as in the heading"}]
        },
    )

    fields: Values = Field(description="As the profile has them; null or [] for nothing")
    reason: Why | None = None


class AcceptIn(BaseModel):
    """Why a node is right as it is."""

    model_config = ConfigDict(extra="forbid")

    reason: Why | None = None


class ForReview(BaseModel):
    """A page of what needs review, and where the next one begins; null after the last."""

    items: list[dict[str, Any]]
    next: str | None = Field(examples=["10.4711"])


class RequeueIn(BaseModel):
    """Which nodes go back to work. Without a status: those that are not done."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"tenant_id": "default", "only_null_status": True, "limit": 2000}]
        },
    )

    tenant_id: Name | None = None
    status: Name | None = Field(None, examples=["failed", "queued"])
    only_null_status: bool = False
    only_missing_embedding: bool = False
    backfill_ready: bool = Field(
        False, description="Mark nodes ready that have their vector but do not say so"
    )
    node_ids: list[str] | None = Field(None, max_length=2000)
    limit: int = Field(2000, ge=0, description="At most 2000; more is taken for 2000")


class Requeued(BaseModel):
    requested: int
    enqueued: int
    backfilled: int


class ReplayIn(BaseModel):
    """Which dead letters are tried again; without ids, the oldest."""

    model_config = ConfigDict(extra="forbid")

    tenant_id: Name | None = None
    ids: list[int] | None = Field(None, max_length=2000)
    limit: int = Field(2000, ge=0)


class RunIn(BaseModel):
    """A source to be ingested now."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"source": "acme", "force": False}]}
    )

    source: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(
        description="A source's name, a URL, or s3://bucket/prefix"
    )
    tenant_id: Name | None = None
    profile: Name | None = None
    force: bool = False
    documents: list[str] = Field([], max_length=1000, description="Processed although unchanged")


class JobIn(BaseModel):
    """Work to be done on a node."""

    model_config = ConfigDict(extra="forbid")

    node_id: str
    stage: str = Field("extract", pattern="^(extract|embed)$")
    priority: int | None = Field(
        None, ge=-1000, le=1000, description="Higher first; default: as it was, or 0"
    )
    tenant_id: Name | None = None


class JobsIn(BaseModel):
    """Which jobs: those of these ids, those a filter finds, or with both, those of these ids that
    it finds. One of the two must be there."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"status": "failed", "limit": 500}]}
    )

    tenant_id: Name | None = None
    ids: list[Id] | None = Field(None, max_length=MOST_JOBS, description="Of any stage")
    stage: Stage | None = Field(None, description="Default: extract; with ids, any")
    status: ItemStatus | None = Field(
        None, description="Default, without ids: what failed is retried, what is active cancelled"
    )
    node_id: str | None = None
    run_id: Id | None = None
    error_class: str | None = Field(None, max_length=50, pattern="^[a-z_]+$", examples=["timeout"])
    limit: int = Field(
        MOST_JOBS,
        ge=1,
        description=f"Of what a filter finds, newest first; more than {MOST_JOBS} is taken for it",
    )


class Refused(BaseModel):
    id: int
    reason: str


class Retried(BaseModel):
    requested: int
    retried: int
    refused: list[Refused]


class Cancelled(BaseModel):
    requested: int
    cancelled: int
    refused: list[Refused]
