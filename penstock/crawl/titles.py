"""Which of the listed documents are wanted, by the words of their titles."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from penstock.crawl.listing import Listed, Listing


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a document is crawled, and why."""

    included: bool
    why: str


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Whole words, whatever their case, so that `intern` does not mean `International`; a `*`
    stands for the rest of a word."""
    words = re.escape(" ".join(pattern.split())).replace(r"\*", r"\w*").replace(r"\ ", r"\s+")
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TitleFilter:
    """One of the included patterns, if there are any, and none of the excluded ones."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def decide(self, listed: Listed) -> Decision:
        title = listed.title or words_of_address(listed.url)
        unwanted = _first_match(self.exclude, title)
        if unwanted is not None:
            return Decision(False, f"title excluded by {unwanted!r}")
        if not self.include:
            return Decision(True, "listed")
        wanted = _first_match(self.include, title)
        if wanted is None:
            return Decision(False, "title has none of the included words")
        return Decision(True, f"title included by {wanted!r}")


@dataclass(frozen=True, slots=True)
class FilteredListing:
    """A listing without the documents that are not wanted."""

    listing: Listing
    titles: TitleFilter

    @property
    def kind(self) -> str:
        return self.listing.kind

    @property
    def name(self) -> str:
        return self.listing.name

    @property
    def location(self) -> str:
        return self.listing.location

    def list(self) -> Iterator[Listed]:
        return (one for one in self.listing.list() if self.titles.decide(one).included)


def words_of_address(url: str) -> str:
    """What stands for the title of a page that is only known by its address."""
    segments = [part for part in urlsplit(url).path.split("/") if part]
    return re.sub(r"[-_+.]+", " ", unquote(segments[-1])) if segments else url


def _first_match(patterns: Sequence[str], title: str) -> str | None:
    return next((one for one in patterns if compile_pattern(one).search(title)), None)
