"""Telling what a source is from what a person typed."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.crawl.folder import FolderListing, SingleFileListing
from penstock.crawl.listing import Listing
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.crawl.fetch import Fetcher


def recognise_source(source: str, fetcher: "Fetcher") -> Listing:
    """The listing for a folder, a file, a file of URLs, or a site."""
    if source.lower().startswith(("http://", "https://")):
        return _recognise_site(source, fetcher)
    return _recognise_path(source)


def _recognise_site(source: str, fetcher: "Fetcher") -> Listing:
    from penstock.crawl.site import SiteListing
    from penstock.crawl.url import normalise_url, parse_url

    url, normalised = parse_url(source), normalise_url(source)
    if url is None or normalised is None:
        raise UsageError(f"{source} is not a valid URL")
    if url.userinfo:
        raise UsageError(
            f"the URL of {url.host} holds a user name or password, which would be stored and shown;"
            " give it without them"
        )
    return SiteListing(normalised, fetcher)


def _recognise_path(source: str) -> Listing:
    from penstock.crawl.urllist import UrlListListing, holds_only_urls

    path = Path(source)
    try:
        # An empty text would be taken for the current folder.
        os.stat(source)  # noqa: PTH116
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot use {source!r} as a source ({reason}). SOURCE may be a folder, a file, "
            "a text file with one URL per line, or an http(s) URL of a site or sitemap"
        ) from error
    if path.is_dir():
        return FolderListing(path)
    return UrlListListing(path) if holds_only_urls(path) else SingleFileListing(path)
