"""A web site as a source: the pages of its sitemap, or a page and the links on it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from penstock.crawl.fetch import Fetched, Fetcher
from penstock.crawl.link import page_links
from penstock.crawl.listing import Listed
from penstock.crawl.retry import HttpFault
from penstock.crawl.sitemap import Sitemap, SitemapError, parse_sitemap
from penstock.crawl.url import is_below, normalise_url, root_url
from penstock.errors import DocumentFault, ErrorClass, ListingFailed

MAX_DEPTH = 3
MAX_SITEMAPS = 1_000
MAX_PAGES = 1_000_000
_MISSING = frozenset({400, 404, 405, 406, 410})


@dataclass(frozen=True, slots=True)
class SiteListing:
    """The pages at and below a URL, or all pages of the sitemap that the URL is."""

    location: str
    """Normalised."""
    fetcher: Fetcher
    kind: str = field(default="site", init=False)

    @property
    def name(self) -> str:
        return self.location

    def list(self) -> Iterator[Listed]:
        try:
            yield from map(_listed, self._pages())
        except (DocumentFault, SitemapError) as error:
            raise ListingFailed(f"could not list {self.location}: {error}") from error

    def _pages(self) -> Iterator[str]:
        start = self.fetcher.get(self.location)
        sitemap = parse_sitemap(start.content)
        if sitemap is not None:
            yield from _SitemapTree(self.fetcher).pages([(self.location, sitemap)])
        elif self.location.partition("?")[0].endswith((".xml", ".xml.gz")):
            raise SitemapError("it is not a sitemap")
        else:
            yield from self._pages_below(start)

    def _pages_below(self, start: Fetched) -> Iterator[str]:
        bases = (self.location, start.final_url)
        found = False
        for page in _SitemapTree(self.fetcher).pages(self._site_sitemaps()):
            if any(is_below(page, base) for base in bases):
                found = True
                yield page
        if not found:
            yield self.location
            links = page_links(start.content, start.media_type, start.final_url)
            below = (link for link in links if any(is_below(link, base) for base in bases))
            yield from (link for link in below if link not in bases)

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


def _listed(url: str) -> Listed:
    return Listed(url, url)
