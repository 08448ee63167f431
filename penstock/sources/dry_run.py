"""What a run of a source would crawl, without crawling it or changing anything."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.crawl.listing import Listed
from penstock.crawl.titles import Decision, FilteredListing
from penstock.errors import DocumentFault

if TYPE_CHECKING:
    from penstock.crawl.fetch import Fetcher


@dataclass(frozen=True, slots=True)
class Prospect:
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


def try_listing(listing: FilteredListing, fetcher: "Fetcher") -> Iterator[Prospect]:
    """Everything the source lists. Raises ListingFailed when it cannot be listed."""
    for listed in listing.listing.list():
        decision = listing.titles.decide(listed)
        if decision.included:
            decision = _check_address(listed, fetcher) or decision
        yield Prospect(listed, decision)


def _check_address(listed: Listed, fetcher: "Fetcher") -> Decision | None:
    try:
        fetcher.check(listed)
    except DocumentFault as fault:
        return Decision(False, str(fault))
    return None
