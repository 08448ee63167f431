"""A web site as a source: the pages of its sitemap, or a page and the links on it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.crawl.boards.board import read_json
from penstock.crawl.boards.registry import board_in
from penstock.crawl.feed import FeedError, parse_feed
from penstock.crawl.fetch import Fetched, Fetcher
from penstock.crawl.link import page_links
from penstock.crawl.listing import Listed
from penstock.crawl.retry import HttpFault
from penstock.crawl.sitemap import Sitemap, SitemapError, parse_sitemap
from penstock.crawl.url import is_below, normalise_url, root_url
from penstock.errors import DocumentFault, ErrorClass, ListingFailed, UsageError

MAX_DEPTH = 3
MAX_SITEMAPS = 1_000
MAX_PAGES = 1_000_000
_MISSING = frozenset({400, 404, 405, 406, 410})


@dataclass(frozen=True, slots=True)
class SiteListing:
    """The pages at and below a URL, or all that the sitemap, feed or job board at it names."""

    location: str
    """Normalised."""
    fetcher: Fetcher
    link_pattern: str | None = None
    """A regular expression, searched in URLs: what matches is listed wherever it is, nothing else
    is, and the page at the location only names it."""
    kind: str = "site"

    def __post_init__(self) -> None:
        try:
            re.compile(self.link_pattern or "")
        except (re.error, OverflowError, RecursionError) as error:
            message = f"the link pattern {self.link_pattern!r} is not a regular expression: {error}"
            raise UsageError(message) from error

    @property
    def name(self) -> str:
        return self.location

    def list(self) -> Iterator[Listed]:
        try:
            yield from self._listed()
        except (DocumentFault, SitemapError, FeedError) as error:
            raise ListingFailed(f"could not list {self.location}: {error}") from error

    def _listed(self) -> Iterator[Listed]:
        start = self.fetcher.get(self.location)
        named = self._named_by(start)
        if named is not None:
            yield from (listed for listed in named if self._matches(listed.url))
        elif self.location.partition("?")[0].endswith((".xml", ".xml.gz")):
            raise SitemapError("it is neither a sitemap nor a feed")
        else:
            yield from self._pages_around(start)

    def _named_by(self, start: Fetched) -> Iterator[Listed] | None:
        """What the start names when it is no page but a list; None when it is none."""
        sitemap = parse_sitemap(start.content)
        if sitemap is not None:
            return map(_page, _SitemapTree(self.fetcher).pages([(self.location, sitemap)]))
        feed = parse_feed(start.content, start.final_url)
        if feed is not None:
            return feed.listed()
        document = read_json(start.content)
        board = board_in(document)
        return board(self.location, self.fetcher).list_document(document) if board else None

    def _pages_around(self, start: Fetched) -> Iterator[Listed]:
        bases = (self.location, start.final_url)
        found = False
        for page in _SitemapTree(self.fetcher).pages(self._site_sitemaps()):
            if self._belongs(page, bases):
                found = True
                yield _page(page)
        if not found:
            yield from self._start_and_links(start, bases)

    def _start_and_links(self, start: Fetched, bases: tuple[str, str]) -> Iterator[Listed]:
        if self.link_pattern is None:
            yield _page(self.location)
        for link in page_links(start.content, start.media_type, start.final_url):
            if link.url not in bases and self._belongs(link.url, bases):
                yield Listed(link.url, link.url, link.text)

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
            sitemap = self._sitemap_if_there(url)
            if sitemap is not None:
                yield url, sitemap
        for url in named:
            # The site says it has this one: without it the listing would be short, not small.
            sitemap = parse_sitemap(self.fetcher.get(url).content)
            if sitemap is None:
                raise SitemapError(f"{url}, named by robots.txt, is not a sitemap")
            yield url, sitemap

    def _sitemap_if_there(self, url: str) -> Sitemap | None:
        """None when the site has none here; a site that fails to answer is another matter."""
        try:
            return parse_sitemap(self.fetcher.get(url).content)
        except DocumentFault as fault:
            status = fault.status if isinstance(fault, HttpFault) else None
            if fault.kind is ErrorClass.FORBIDDEN or status in _MISSING:
                return None
            raise


class _SitemapTree:
    """Sitemaps and the sitemaps they name, each read once, within bounds."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._sitemaps: set[str] = set()
        self._pages: set[str] = set()

    def pages(self, roots: Iterable[tuple[str, Sitemap]]) -> Iterator[str]:
        for url, sitemap in roots:
            self._sitemaps.add(url)
            yield from self._below(url, sitemap, depth=1)

    def _below(self, url: str, sitemap: Sitemap, depth: int) -> Iterator[str]:
        locations = filter(None, map(normalise_url, sitemap.locations))
        if not sitemap.is_index:
            yield from self._new_pages(locations)
            return
        if depth > MAX_DEPTH:
            raise SitemapError(f"{url} is nested more than {MAX_DEPTH} sitemaps deep")
        for child in locations:
            if child not in self._sitemaps:
                yield from self._below(child, self._read(child), depth + 1)

    def _new_pages(self, locations: Iterator[str]) -> Iterator[str]:
        for page in locations:
            if page in self._pages:
                continue
            if len(self._pages) == MAX_PAGES:
                raise SitemapError(f"more than {MAX_PAGES} pages; list a part of the site instead")
            self._pages.add(page)
            yield page

    def _read(self, url: str) -> Sitemap:
        if len(self._sitemaps) == MAX_SITEMAPS:
            raise SitemapError(
                f"more than {MAX_SITEMAPS} sitemaps; list a part of the site instead"
            )
        self._sitemaps.add(url)
        sitemap = parse_sitemap(self._fetcher.get(url).content)
        if sitemap is None:
            raise SitemapError(f"{url} is not a sitemap")
        return sitemap


def _page(url: str) -> Listed:
    return Listed(url, url)
