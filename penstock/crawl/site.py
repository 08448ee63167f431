"""Web sources: the pages of a site's sitemap, or a page and the links on it; a feed's pages."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from penstock.crawl.boards.base import read_json
from penstock.crawl.boards.platforms import board_in
from penstock.crawl.fetch import Fetched, Fetcher
from penstock.crawl.http import HttpFault
from penstock.crawl.listing import Listed
from penstock.crawl.urls import is_below, normalise_url, page_links, root_url
from penstock.crawl.xml_lists import Sitemap, XmlListError, parse_feed, parse_sitemap
from penstock.errors import DocumentFault, ErrorClass, ListingFailed, UsageError

MAX_DEPTH = 3
MAX_SITEMAPS = 1_000
MAX_PAGES = 1_000_000
_MISSING = frozenset({400, 404, 405, 406, 410})


@dataclass(frozen=True, slots=True)
class SiteListing:
    """The pages at and below a URL, or all entries of the sitemap, feed or job board at it."""

    location: str
    """Normalised."""
    fetcher: Fetcher
    link_pattern: str | None = None
    """A regular expression, searched in URLs: only what matches is listed, on any host; the page
    at the location itself is not."""
    kind: str = "site"

    def __post_init__(self) -> None:
        try:
            re.compile(self.link_pattern or "")
        except (re.error, OverflowError, RecursionError) as error:
            message = f"the link pattern {self.link_pattern!r} is not a regular expression: {error}"
            raise UsageError(message) from error

    def list(self) -> Iterator[Listed]:
        try:
            yield from self._listed()
        except (DocumentFault, XmlListError) as error:
            raise ListingFailed(f"could not list {self.location}: {error}") from error

    def _listed(self) -> Iterator[Listed]:
        start = self.fetcher.get(self.location)
        entries = self._entries_of(start)
        if entries is not None:
            yield from (listed for listed in entries if self._matches(listed.url))
        elif self.location.partition("?")[0].endswith((".xml", ".xml.gz")):
            raise XmlListError("it is neither a sitemap nor a feed")
        else:
            yield from self._pages_around(start)

    def _entries_of(self, start: Fetched) -> Iterator[Listed] | None:
        """The entries of a sitemap, feed or job board; None when it is a page."""
        sitemap = parse_sitemap(start.content)
        if sitemap is not None:
            return map(_page, _SitemapTree(self.fetcher).pages([(self.location, sitemap)]))
        feed = parse_feed(start.content, start.final_url)
        if feed is not None:
            return feed.listed()
        document = read_json(start.content)
        board = board_in(document)
        return board(self.location, self.fetcher).list(document) if board else None

    def _pages_around(self, start: Fetched) -> Iterator[Listed]:
        bases = (self.location, start.final_url)
        found = False
        for page in _SitemapTree(self.fetcher).pages(self._site_sitemaps()):
            if self._belongs(page, bases):
                found = True
                yield _page(page)
        if not found:
            if self.link_pattern is None:
                yield _page(self.location)
            for url, text in page_links(start.content, start.media_type, start.final_url):
                if url not in bases and self._belongs(url, bases):
                    yield Listed(url, url, text)

    def _belongs(self, url: str, bases: tuple[str, str]) -> bool:
        if self.link_pattern is None:
            return any(is_below(url, base) for base in bases)
        return url not in bases and self._matches(url)

    def _matches(self, url: str) -> bool:
        return self.link_pattern is None or re.search(self.link_pattern, url) is not None

    def _site_sitemaps(self) -> Iterator[tuple[str, Sitemap]]:
        named = list(filter(None, map(normalise_url, self.fetcher.sitemaps(self.location))))
        if not named:
            url = root_url(self.location) + "sitemap.xml"
            try:
                sitemap = parse_sitemap(self.fetcher.get(url).content)
            except DocumentFault as fault:
                # A site without a sitemap; any other fault would make the listing incomplete.
                status = fault.status if isinstance(fault, HttpFault) else None
                if fault.kind is not ErrorClass.FORBIDDEN and status not in _MISSING:
                    raise
                sitemap = None
            if sitemap is not None:
                yield url, sitemap
        for url in named:
            # Without a sitemap that robots.txt names, the listing would be incomplete.
            sitemap = parse_sitemap(self.fetcher.get(url).content)
            if sitemap is None:
                raise XmlListError(f"{url}, named by robots.txt, is not a sitemap")
            yield url, sitemap


@dataclass(frozen=True, slots=True)
class FeedListing:
    """The pages that a feed lists now; feeds drop old entries."""

    location: str
    """Normalised."""
    fetcher: Fetcher
    kind: str = field(default="feed", init=False)

    def list(self) -> Iterator[Listed]:
        try:
            answer = self.fetcher.get(self.location)
            feed = parse_feed(answer.content, answer.final_url)
            if feed is None:
                raise XmlListError("expected an RSS or Atom feed")
            yield from feed.listed()
        except (DocumentFault, XmlListError) as error:
            raise ListingFailed(f"could not list {self.location}: {error}") from error


class _SitemapTree:
    """Sitemaps and the sitemaps they refer to, each read once, within limits."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._sitemaps: set[str] = set()
        self._pages: set[str] = set()

    def pages(self, roots: Iterable[tuple[str, Sitemap]]) -> Iterator[str]:
        for url, sitemap in roots:
            self._sitemaps.add(url)
            yield from self._below(url, sitemap, depth=1)

    def _below(self, url: str, sitemap: Sitemap, depth: int) -> Iterator[str]:
        if sitemap.is_index and depth > MAX_DEPTH:
            raise XmlListError(f"{url} is nested more than {MAX_DEPTH} sitemaps deep")
        for location in filter(None, map(normalise_url, sitemap.locations)):
            if sitemap.is_index:
                if location not in self._sitemaps:
                    yield from self._below(location, self._read(location), depth + 1)
            elif location not in self._pages:
                if len(self._pages) == MAX_PAGES:
                    raise XmlListError(f"more than {MAX_PAGES} pages; list a part of the site")
                self._pages.add(location)
                yield location

    def _read(self, url: str) -> Sitemap:
        if len(self._sitemaps) == MAX_SITEMAPS:
            raise XmlListError(f"more than {MAX_SITEMAPS} sitemaps; list a part of the site")
        self._sitemaps.add(url)
        sitemap = parse_sitemap(self._fetcher.get(url).content)
        if sitemap is None:
            raise XmlListError(f"{url} is not a sitemap")
        return sitemap


def _page(url: str) -> Listed:
    return Listed(url, url)
