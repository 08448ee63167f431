"""Finds the listing of a source: a name, a folder, a file, a URL or a bucket."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.crawl.files import (
    FolderListing,
    SingleFileListing,
    UrlListListing,
    holds_only_urls,
)
from penstock.crawl.listing import Decision, FilteredListing, Listed, Listing, TitleFilter
from penstock.crawl.s3 import S3Listing, is_s3_location, parse_s3_location
from penstock.crawl.urls import normalise_url, parse_url
from penstock.errors import DocumentFault, ListingFailed, UsageError
from penstock.sources.catalogue import Source, SourceSettings, find_source
from penstock.store.database import Database

if TYPE_CHECKING:
    from penstock.crawl.access import OffLimits
    from penstock.crawl.fetch import Fetcher

_SITE_KINDS = ("site", "jobs")
_WEB_KINDS = (*_SITE_KINDS, "greenhouse", "lever", "ashby", "feed")
_PATH_KINDS = ("url_list", "folder", "file")
KINDS = (*_WEB_KINDS, *_PATH_KINDS)


@dataclass(frozen=True, slots=True)
class SourceFinder:
    """Finds sources in the catalogue, and builds their listings."""

    database: Database
    fetcher: Callable[[], "Fetcher"]
    s3: Callable[[], Any]
    off_limits: Callable[[], "OffLimits"]

    def find(self, source: str, tenant_id: str) -> Source | None:
        """The source of this name or location in the catalogue."""
        with self.database.read() as tx:
            named = find_source(tx, tenant_id, source)
        if named is not None:
            return named
        try:
            location = self.recognise(source).location
        except UsageError:
            return None
        with self.database.read() as tx:
            return find_source(tx, tenant_id, location)

    def recognise(self, source: str) -> Listing:
        """The listing for a location, by its form; nothing is requested from it."""
        listing = self._build(recognise_kind(source), source)
        if self._overlaps_raw_store(listing.kind, source):
            raise UsageError(_refusal(source))
        return listing

    def listing(
        self, kind: str | None, location: str, settings: SourceSettings | None = None
    ) -> FilteredListing:
        """The documents of a source, without those that its settings exclude."""
        chosen = settings or SourceSettings()
        if kind is None or kind in _PATH_KINDS:
            kind = self._kind_now(kind, location)
        if self._overlaps_raw_store(kind, location):
            raise ListingFailed(_refusal(location))
        listing = self._build(kind, location, chosen.link_pattern)
        return FilteredListing(listing, TitleFilter(chosen.include_titles, chosen.exclude_titles))

    def _build(self, kind: str, location: str, link_pattern: str | None = None) -> Listing:
        if kind == "s3":
            return S3Listing(location, self.s3())
        return build_listing(kind, location, self.fetcher(), link_pattern=link_pattern)

    def _kind_now(self, kind: str | None, location: str) -> str:
        """The kind that the location has now. Listed as another kind than before, a source would
        seem to have lost all its documents."""
        try:
            found = self.recognise(location).kind
        except UsageError as error:
            if kind is None:
                raise
            raise ListingFailed(str(error)) from error
        if kind is not None and found != kind:
            raise ListingFailed(
                f"{location} was a {kind} and is now a {found}: restore it, or add a new source"
            )
        return found

    def _overlaps_raw_store(self, kind: str, location: str) -> bool:
        if kind == "s3":
            return self.off_limits().overlap_prefix(*parse_s3_location(location))
        return kind in _PATH_KINDS and self.off_limits().overlap_path(require_path(location))


def _refusal(location: str) -> str:
    return (
        f"{location} cannot be a source: it is inside the raw store, which holds the data of every "
        "tenant, or contains it, or has a part `.` or `..`, which may lead elsewhere. "
        "Choose another location, or move the raw store"
    )


def recognise_kind(source: str) -> str:
    """Whether it is a bucket, a job board, a site, a folder, a file of URLs or another file."""
    if is_s3_location(source):
        return "s3"
    if is_web(source):
        # Imported here because it loads the HTTP client, which local sources do not need.
        from penstock.crawl.boards.base import find_board

        board = find_board(_require_url(source))
        return board.kind if board else "site"
    path = require_path(source)
    if path.is_dir():
        return "folder"
    return "url_list" if holds_only_urls(path) else "file"


def build_listing(
    kind: str, location: str, fetcher: "Fetcher", *, link_pattern: str | None = None
) -> Listing:
    """The listing of a known kind; UsageError when kind, location or pattern do not fit."""
    if kind not in KINDS:
        raise UsageError(f"there is no source of kind {kind!r}; kinds are {', '.join(KINDS)}")
    if link_pattern is not None and kind not in _SITE_KINDS:
        raise UsageError(f"a link pattern is for the kinds site and jobs, not for {kind}")
    if kind in _WEB_KINDS:
        from penstock.crawl.boards.platforms import BOARDS
        from penstock.crawl.site import FeedListing, SiteListing

        url = _require_url(location)
        if kind in BOARDS:
            return BOARDS[kind](url, fetcher)
        if kind == "feed":
            return FeedListing(url, fetcher)
        return SiteListing(url, fetcher, link_pattern, kind)
    path = require_path(location)
    if path.is_dir() is not (kind == "folder"):
        what = "a folder" if path.is_dir() else "not a folder"
        raise UsageError(f"{location} is {what}, and cannot be a source of kind {kind}")
    if kind == "folder":
        return FolderListing(path)
    return UrlListListing(path) if kind == "url_list" else SingleFileListing(path)


def _require_url(source: str) -> str:
    url, normalised = parse_url(source), normalise_url(source)
    if url is None or normalised is None:
        raise UsageError(f"{source} is not a valid URL")
    if url.userinfo:
        raise UsageError(
            f"the URL of {url.host} holds a user name or password, which would be stored and shown;"
            " give it without them"
        )
    return normalised


def require_path(source: str) -> Path:
    """The path of a source; UsageError when it does not exist."""
    # A program or a form passes `~` as it is; a shell does not.
    path = os.path.expanduser(source)  # noqa: PTH111 - Path("") would be the current folder
    try:
        # An empty text would be taken for the current folder.
        os.stat(path)  # noqa: PTH116
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot use {source!r} as a source ({reason}). SOURCE may be a folder, a file, "
            "a text file with one URL per line, or an http(s) URL of a site, sitemap, feed or "
            "job board"
        ) from error
    return Path(path)


def is_web(source: str) -> bool:
    """Whether the source is an http(s) URL."""
    return source.lower().startswith(("http://", "https://"))


@dataclass(frozen=True, slots=True)
class PreviewedDocument:
    """A listed document, and whether a run would crawl it."""

    listed: Listed
    decision: Decision

    def as_json(self) -> dict[str, object]:
        return {
            "external_id": self.listed.external_id,
            "url": self.listed.url,
            "title": self.listed.title,
            "included": self.decision.included,
            "why": self.decision.why,
        }


def preview_listing(listing: FilteredListing, fetcher: "Fetcher") -> Iterator[PreviewedDocument]:
    """All documents that the source lists. Raises ListingFailed when it cannot be listed."""
    for listed in listing.listing.list():
        decision = listing.titles.decide(listed)
        if decision.included:
            try:
                fetcher.check(listed)
            except DocumentFault as fault:
                decision = Decision(False, str(fault))
        yield PreviewedDocument(listed, decision)
