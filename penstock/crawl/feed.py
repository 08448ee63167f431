"""RSS and Atom feeds as sources: the pages that their entries lead to."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from penstock.crawl.compression import CompressionError, gunzip_whole
from penstock.crawl.fetch import Fetcher
from penstock.crawl.link import join_url
from penstock.crawl.listing import Listed
from penstock.crawl.url import normalise_url
from penstock.errors import DocumentFault, ListingFailed

log = logging.getLogger(__name__)

MAX_BYTES = 50 * 1024 * 1024
_TITLE_CHARS = 300
_ENTRIES = {
    "rss": ["rss", "channel", "item"],
    "RDF": ["RDF", "item"],
    "feed": ["feed", "entry"],
}
# Other vocabularies have these roots too; RSS 2.0 has no namespace.
_NAMESPACES = {
    "RDF": {"http://purl.org/rss/1.0/", "http://my.netscape.com/rdf/simple/0.9/"},
    "feed": {"http://www.w3.org/2005/Atom", "http://purl.org/atom/ns#"},
}
_FIELDS = frozenset({"title", "link", "guid", "id"})
_ALTERNATE = frozenset({"", "alternate", "http://www.iana.org/assignments/relation/alternate"})


class FeedError(Exception):
    """The bytes begin as a feed but cannot be read as one."""


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One entry, as far as it says so."""

    id: str
    url: str | None
    """Absolute and normalised; None when there is no http(s) link."""
    title: str | None


@dataclass(frozen=True, slots=True)
class Feed:
    """The entries of a feed, in its order."""

    url: str
    entries: tuple[FeedEntry, ...]

    def listed(self) -> Iterator[Listed]:
        """The pages behind the entries, each once; entries without one are left out."""
        seen: set[str] = set()
        missing = sum(entry.url is None for entry in self.entries)
        if missing and missing == len(self.entries):
            raise FeedError("none of its entries has an http(s) link")
        if missing:
            count = len(self.entries)
            log.warning("%d of %d entries of %s have no http(s) link", missing, count, self.url)
        for entry in self.entries:
            name = entry.id or entry.url
            if entry.url is not None and name and name not in seen:
                seen.add(name)
                yield Listed(name, entry.url, entry.title)


@dataclass(frozen=True, slots=True)
class FeedListing:
    """The pages that a feed names now; feeds forget old ones."""

    location: str
    """Normalised."""
    fetcher: Fetcher
    kind: str = field(default="feed", init=False)

    @property
    def name(self) -> str:
        return self.location

    def list(self) -> Iterator[Listed]:
        try:
            answer = self.fetcher.get(self.location)
            feed = parse_feed(answer.content, answer.final_url)
            if feed is None:
                raise FeedError("expected an RSS or Atom feed")
            yield from feed.listed()
        except (DocumentFault, FeedError) as error:
            raise ListingFailed(f"could not list {self.location}: {error}") from error


def parse_feed(content: bytes, base_url: str) -> Feed | None:
    """The feed that the bytes are (gzip or not), or None when they are something else."""
    reader = _Reader(base_url)
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    # Entities are of no use in a feed, and a few lines of them can unpack to gigabytes.
    parser.EntityDeclHandler = reader.refuse_entity
    try:
        # Not allowed, but common: blank lines before the declaration.
        parser.Parse(_unpacked(content).lstrip(b" \t\r\n"), True)
    except _OtherContentError:
        return None
    except (expat.ExpatError, ValueError, LookupError) as error:
        # The last two are for encodings that expat does not know.
        if reader.root is None:
            return None
        raise FeedError(str(error)) from error
    return Feed(base_url, tuple(reader.entries))


class _OtherContentError(Exception):
    pass


class _Draft:
    """An entry while it is read."""

    def __init__(self, prefix: str, attributes: dict[str, str]) -> None:
        self.prefix = prefix
        self.texts: dict[str, str] = {}
        self.links: list[str | None] = []
        self.guid_is_link = True
        named = (value for key, value in attributes.items() if _local_name(key) == "about")
        self.about = next(named, "").strip()

    def finish(self, base: str) -> FeedEntry:
        guid = self.texts.get("guid", "")
        told = self.texts.get("link") or self.about
        links = [*self.links, join_url(base, told) if told else None]
        links.append(guid if self.guid_is_link else None)
        urls = filter(None, (normalise_url(link) for link in links if link))
        title = self.texts.get("title", "")[:_TITLE_CHARS].strip()
        return FeedEntry(
            guid or self.texts.get("id") or self.about, next(urls, None), title or None
        )


class _Reader:
    def __init__(self, base_url: str) -> None:
        self.root: str | None = None
        self.entries: list[FeedEntry] = []
        self._entry: list[str] = []
        # The path ends at the parts of an entry: what is inside them may be deep.
        self._path: list[str] = []
        self._depth = 0
        # `xml:base` of the elements around, or the feed's own URL.
        self._bases = [base_url]
        self._draft: _Draft | None = None
        self._field: str | None = None
        self._text: list[str] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        prefix, _, name = tag.rpartition(":")
        self._depth += 1
        if self.root is None:
            self._recognise(name, attributes)
        if not self._is_near():
            return
        self._path.append(name)
        self._bases.append(join_url(self._bases[-1], attributes.get("xml:base")) or self._bases[-1])
        if self._path == self._entry:
            self._draft = _Draft(prefix, attributes)
        # Parts with another prefix are extensions: <media:title>, <atom:link>.
        elif self._draft is not None and prefix == self._draft.prefix and name in _FIELDS:
            self._start_field(self._draft, name, attributes)

    def end(self, _tag: str) -> None:
        if self._is_near():
            if self._draft is not None:
                self._end_part(self._draft)
            self._path.pop()
            self._bases.pop()
        self._depth -= 1

    def text(self, data: str) -> None:
        if self._field is not None:
            self._text.append(data)

    def refuse_entity(self, *_declaration: object) -> None:
        raise FeedError("it declares entities")

    def _recognise(self, name: str, attributes: dict[str, str]) -> None:
        namespaces = _NAMESPACES.get(name)
        if name not in _ENTRIES or (namespaces and not namespaces & set(attributes.values())):
            raise _OtherContentError
        self.root, self._entry = name, _ENTRIES[name]

    def _is_near(self) -> bool:
        return self._depth <= len(self._entry) + 1

    def _start_field(self, draft: _Draft, name: str, attributes: dict[str, str]) -> None:
        self._field, self._text = name, []
        if name == "guid":
            draft.guid_is_link = attributes.get("isPermaLink", "true").strip().lower() != "false"
        rel, href = attributes.get("rel", "").strip().lower(), attributes.get("href")
        if name == "link" and self.root == "feed" and href and rel in _ALTERNATE:
            draft.links.append(join_url(self._bases[-1], href))

    def _end_part(self, draft: _Draft) -> None:
        if self._path == self._entry:
            self.entries.append(draft.finish(self._bases[-1]))
            self._draft = None
        elif self._field is not None:
            text = " ".join("".join(self._text).split())
            draft.texts[self._field] = draft.texts.get(self._field) or text
            self._field = None


def _local_name(name: str) -> str:
    return name.rpartition(":")[2]


def _unpacked(content: bytes) -> bytes:
    try:
        return gunzip_whole(content, MAX_BYTES)
    except CompressionError as error:
        raise FeedError(f"its compression cannot be used: {error}") from error
