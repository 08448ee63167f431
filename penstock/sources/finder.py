"""From what a person typed to a listing: a name, a folder, a file, a URL or a bucket."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.crawl.listing import Listing
from penstock.crawl.titles import FilteredListing, TitleFilter
from penstock.errors import ListingFailed, UsageError
from penstock.sources.catalogue import Source, find_source
from penstock.sources.definition import SourceSettings
from penstock.store.database import Database

if TYPE_CHECKING:
    from penstock.crawl.fetch import Fetcher

# What lies on this machine can be looked at before it is listed.
LOCAL_KINDS = frozenset({"folder", "file", "url_list"})


@dataclass(frozen=True, slots=True)
class SourceFinder:
    """Knows the catalogue, and how to reach what a source is made of."""

    database: Database
    fetcher: Callable[[], "Fetcher"]
    s3: Callable[[], Any]

    def find(self, source: str, tenant_id: str) -> Source | None:
        """A source that is kept under this name, or that lies where this says."""
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
        """What this looks like; nothing is asked of it."""
        from penstock.crawl.s3_listing import is_s3_location
        from penstock.crawl.source import recognise_source

        if is_s3_location(source):
            return self._bucket(source)
        return recognise_source(source, self.fetcher())

    def listing(
        self, kind: str | None, location: str, settings: SourceSettings | None = None
    ) -> FilteredListing:
        """The documents of a source, without those that its settings do not want."""
        chosen = settings or SourceSettings()
        titles = TitleFilter(chosen.include_titles, chosen.exclude_titles)
        return FilteredListing(self._plain(kind, location, chosen), titles)

    def _plain(self, kind: str | None, location: str, settings: SourceSettings) -> Listing:
        from penstock.crawl.source import build_listing

        if kind is None or kind in LOCAL_KINDS:
            kind = self._kind_now(kind, location)
        if kind == "s3":
            return self._bucket(location)
        pattern = settings.link_pattern
        return build_listing(kind, location, self.fetcher(), link_pattern=pattern)

    def _kind_now(self, kind: str | None, location: str) -> str:
        """Listed as something else, a source would seem to have lost all its documents."""
        try:
            found = self.recognise(location).kind
        except UsageError as error:
            if kind is None:
                raise
            raise ListingFailed(str(error)) from error
        if kind is not None and found != kind:
            raise ListingFailed(
                f"{location} looks like a {found}, no longer like a {kind}: mend it"
            )
        return found

    def _bucket(self, location: str) -> Listing:
        from penstock.crawl.s3_listing import S3Listing

        return S3Listing(location, self.s3())
