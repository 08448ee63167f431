"""What a program says about a node it brings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

TEXT_PROPS = ("text", "resume_text", "content", "body", "description")
_TITLE_PROPS = ("title", "name")


@dataclass(frozen=True, slots=True)
class StoredPayload:
    """Bytes of an uploaded file, already in the raw store."""

    raw_key: str
    name: str
    size: int
    media_type: str | None
    content_hash: str


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node to be accepted. Its text comes from its payload, else from its props."""

    classes: Sequence[str] = ()
    props: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    payload_ref: str | None = None
    profile: str | None = None
    extract: bool | None = None
    """None: as EXTRACTION_ENABLED says."""
    extract_before_embed: bool | None = None
    """None: as EXTRACTION_MODE says."""
    upload: StoredPayload | None = None

    @property
    def has_payload(self) -> bool:
        return self.payload_ref is not None or self.upload is not None

    @property
    def text(self) -> str:
        found = (self.props.get(name) for name in TEXT_PROPS)
        return next((text for text in found if isinstance(text, str) and text.strip()), "")

    @property
    def title(self) -> str | None:
        found = (self.props.get(name) for name in _TITLE_PROPS)
        named = next((one for one in found if isinstance(one, str) and one.strip()), None)
        return named or (self.upload.name if self.upload else None)


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a program is told about its node, and which jobs work on it."""

    id: str
    embedding_status: str
    job_id: int | None
    extraction_status: str | None
    extraction_job_id: int | None

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
