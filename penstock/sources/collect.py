"""Collects the documents of a source outside any run: their bytes, for whatever reads them next."""

import hashlib
from concurrent.futures import Executor
from dataclasses import dataclass

from penstock.crawl.fetch import Fetched, Fetcher
from penstock.crawl.files import check_file, extension_for
from penstock.crawl.listing import Listed
from penstock.crawl.rawstore import PAYLOADS, RawStore
from penstock.documents import Fault, RawReference
from penstock.errors import DocumentFault
from penstock.sources.finder import SourceFinder


@dataclass(frozen=True, slots=True)
class Collector:
    """Lists a source and fetches its documents, with the limits and checks of a run."""

    finder: SourceFinder
    fetcher: Fetcher
    raw: RawStore
    threads: Executor
    max_bytes: int

    def collect(self, source: str, tenant_id: str) -> list[RawReference | Fault]:
        """Its documents, or why one could not be fetched, in the order of the listing.
        ListingFailed when the source cannot be listed."""
        known = self.finder.find(source, tenant_id)
        if known is None:
            seen = self.finder.recognise(source)
            listing = self.finder.listing(seen.kind, seen.location)
        else:
            listing = self.finder.listing(known.kind, known.location, known.settings)
        return [*self.threads.map(lambda one: self._collect(one, tenant_id), listing.list())]

    def fetch(self, listed: Listed) -> Fetched:
        """The bytes of one document; DocumentFault when it cannot or may not be fetched."""
        got = self.fetcher.fetch(listed)
        assert isinstance(got, Fetched), "no marks were sent, so nothing is unchanged"
        return got

    def _collect(self, listed: Listed, tenant_id: str) -> RawReference | Fault:
        name = listed.external_id
        try:
            if listed.path is not None:
                self.finder.off_limits().check_path(listed.path)
                size = check_file(listed.path, self.max_bytes)
                return RawReference(None, name, size, None, path=listed.path)
            got = self.fetch(listed)
        except DocumentFault as fault:
            return Fault.of(fault)
        digest = hashlib.sha256(got.content).hexdigest()
        extension = extension_for(listed.url, got.media_type)
        # Where maintenance deletes what no node refers to.
        key = self.raw.put(tenant_id, PAYLOADS, name, got.content, extension, digest)
        return RawReference(key, name, len(got.content), got.media_type)
