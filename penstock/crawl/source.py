"""Telling what a source is from what a person typed, or from its kind."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.crawl.folder import FolderListing, SingleFileListing
from penstock.crawl.listing import Listing
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.crawl.fetch import Fetcher

_SITE_KINDS = ("site", "jobs")
_WEB_KINDS = (*_SITE_KINDS, "greenhouse", "lever", "ashby", "feed")
_PATH_KINDS = ("url_list", "folder", "file")
KINDS = (*_WEB_KINDS, *_PATH_KINDS)


def recognise_source(source: str, fetcher: "Fetcher") -> Listing:
    """The listing for a folder, a file, a file of URLs, a job board, or a site."""
    if source.lower().startswith(("http://", "https://")):
        return _recognise_url(_require_url(source), fetcher)
    return _recognise_path(source)


def build_listing(
    kind: str, location: str, fetcher: "Fetcher", *, link_pattern: str | None = None
) -> Listing:
    """The listing of a kind that is known; wrong use is told by a UsageError."""
    if kind not in KINDS:
        raise UsageError(f"there is no source of kind {kind!r}; kinds are {', '.join(KINDS)}")
    if link_pattern is not None and kind not in _SITE_KINDS:
        raise UsageError(f"a link pattern is for the kinds site and jobs, not for {kind}")
    if kind in _PATH_KINDS:
        return _build_for_path(kind, location)
    return _build_for_url(kind, _require_url(location), fetcher, link_pattern)


def _recognise_url(url: str, fetcher: "Fetcher") -> Listing:
    from penstock.crawl.boards.registry import board_at
    from penstock.crawl.site import SiteListing

    listing = board_at(url) or SiteListing
    return listing(url, fetcher)


def _build_for_url(kind: str, url: str, fetcher: "Fetcher", link_pattern: str | None) -> Listing:
    from penstock.crawl.boards.registry import BOARDS
    from penstock.crawl.feed import FeedListing
    from penstock.crawl.site import SiteListing

    if kind in _SITE_KINDS:
        return SiteListing(url, fetcher, link_pattern, kind)
    return FeedListing(url, fetcher) if kind == "feed" else BOARDS[kind](url, fetcher)


def _require_url(source: str) -> str:
    from penstock.crawl.url import normalise_url, parse_url

    url, normalised = parse_url(source), normalise_url(source)
    if url is None or normalised is None:
        raise UsageError(f"{source} is not a valid URL")
    if url.userinfo:
        raise UsageError(
            f"the URL of {url.host} holds a user name or password, which would be stored and shown;"
            " give it without them"
        )
    return normalised


def _recognise_path(source: str) -> Listing:
    from penstock.crawl.urllist import UrlListListing, holds_only_urls

    path = _require_path(source)
    if path.is_dir():
        return FolderListing(path)
    return UrlListListing(path) if holds_only_urls(path) else SingleFileListing(path)


def _build_for_path(kind: str, location: str) -> Listing:
    from penstock.crawl.urllist import UrlListListing

    path = _require_path(location)
    if path.is_dir() is not (kind == "folder"):
        what = "a folder" if path.is_dir() else "no folder"
        raise UsageError(f"{location} is {what}, and cannot be a source of kind {kind}")
    if kind == "folder":
        return FolderListing(path)
    return UrlListListing(path) if kind == "url_list" else SingleFileListing(path)


def _require_path(source: str) -> Path:
    # Where no shell has done it: in a program, in a form.
    named = os.path.expanduser(source)  # noqa: PTH111 - Path("") would be the current folder
    try:
        # An empty text would be taken for the current folder.
        os.stat(named)  # noqa: PTH116
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot use {source!r} as a source ({reason}). SOURCE may be a folder, a file, "
            "a text file with one URL per line, or an http(s) URL of a site, sitemap, feed or "
            "job board"
        ) from error
    return Path(named)


def is_remote(source: str) -> bool:
    """Whether this is somewhere else than on this machine's disk."""
    return source.lower().startswith(("http://", "https://", "s3://"))
