"""What a source is made of: listings stream the documents they find, one at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Listed:
    """One document that a source offers; nothing of it has been read yet."""

    external_id: str
    """Names the document inside its source, the same in every run; always valid UTF-8."""
    url: str
    """`file://…` for local files."""
    title: str | None = None
    path: Path | None = None
    """Set for local files only."""
    content: bytes | None = field(default=None, repr=False)
    """Set where the listing itself holds the document, as job boards do."""
    media_type: str | None = None
    """What `content` is."""


class Listing(Protocol):
    """A source that can be listed."""

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str:
        """Readable, and the same in every run."""

    @property
    def location(self) -> str:
        """Where the source is: an absolute path or a URL."""

    def list(self) -> Iterator[Listed]:
        """Stream the documents. Raises ListingFailed, also midway; finding none is no error."""
