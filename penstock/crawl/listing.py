"""The interface of all listings, and filters on the titles of listed documents."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Listed:
    """One document of a source, before it is fetched."""

    external_id: str
    """Identifies the document within its source, the same in every run; always valid UTF-8."""
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
    def location(self) -> str:
        """Where the source is: an absolute path or a URL, the same in every run."""

    def list(self) -> Iterator[Listed]:
        """Yield the documents. Raises ListingFailed, also midway; an empty source is no error."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a document is crawled, and why."""

    included: bool
    why: str


_LISTED = Decision(True, "listed")


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern for whole words, ignoring case, so that `intern` does not match `International`;
    `*` matches the rest of a word."""
    words = re.escape(" ".join(pattern.split())).replace(r"\*", r"\w*").replace(r"\ ", r"\s+")
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TitleFilter:
    """Accepts titles that match an included pattern, if there are any, and no excluded one."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def decide(self, listed: Listed) -> Decision:
        if not self.include and not self.exclude:
            return _LISTED
        title = listed.title or title_from_url(listed.url)
        unwanted = _first_match(self.exclude, title)
        if unwanted is not None:
            return Decision(False, f"title excluded by {unwanted!r}")
        if not self.include:
            return _LISTED
        wanted = _first_match(self.include, title)
        if wanted is None:
            return Decision(False, "title has none of the included words")
        return Decision(True, f"title included by {wanted!r}")


@dataclass(frozen=True, slots=True)
class FilteredListing:
    """A listing without the documents that its title filter excludes."""

    listing: Listing
    titles: TitleFilter

    @property
    def kind(self) -> str:
        return self.listing.kind

    @property
    def location(self) -> str:
        return self.listing.location

    def list(self) -> Iterator[Listed]:
        return (one for one in self.listing.list() if self.titles.decide(one).included)


def title_from_url(url: str) -> str:
    """The words of the URL's last segment, for pages listed without a title."""
    segments = [part for part in urlsplit(url).path.split("/") if part]
    return re.sub(r"[-_+.]+", " ", unquote(segments[-1])) if segments else url


def _first_match(patterns: Sequence[str], title: str) -> str | None:
    return next((one for one in patterns if compile_pattern(one).search(title)), None)
