"""Lists of pages in XML from the web: sitemaps, and RSS and Atom feeds.

The XML is streamed, so neither its depth nor its size costs memory. Entities are refused: a list
needs none, and a few lines of them can unpack to gigabytes.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from penstock.crawl.http import CompressionError, gunzip_whole
from penstock.crawl.listing import Listed
from penstock.crawl.urls import join_url, normalise_url

log = logging.getLogger(__name__)

# The sitemap protocol allows 50 MiB, unpacked.
MAX_BYTES = 50 * 1024 * 1024
_MAX_FIELDS = 1_000


class XmlListError(Exception):
    """The bytes begin as a list but cannot be read as one."""


@dataclass(slots=True)
class XmlElement:
    """A record, with its fields as children; or a field, with all the text inside it."""

    name: str
    prefix: str
    attributes: dict[str, str]
    base_url: str
    """`xml:base` of the elements around it, or the URL of the list."""
    text: str = ""
    children: list["XmlElement"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class XmlFormat:
    """Where a kind of list has its records; names are without prefixes, which vary."""

    record_paths: Mapping[str, Sequence[str]]
    """By the name of the root, which is the first of the path."""
    fields: Collection[str]
    """The children of a record that are read."""
    namespaces: Mapping[str, set[str]] = field(default_factory=dict)
    """For roots that other vocabularies have too: one of these must be declared."""


def read_records(
    content: bytes, xml_format: XmlFormat, add: Callable[[XmlElement], None], base_url: str = ""
) -> str | None:
    """Call `add` with each record (gzip or not) and return the name of the root.

    None when the root is not one of the format; XmlListError when the XML is broken below it.
    """
    handler = _Handler(xml_format, add, base_url)
    parser = expat.ParserCreate()
    parser.StartElementHandler = handler.start
    parser.EndElementHandler = handler.end
    parser.CharacterDataHandler = handler.add_text
    parser.EntityDeclHandler = handler.refuse_entity
    try:
        # Blank lines before the declaration are not allowed, but common.
        parser.Parse(gunzip_whole(content, MAX_BYTES).lstrip(b" \t\r\n"), True)
    except _OtherRootError:
        return None
    except CompressionError as error:
        raise XmlListError(f"it cannot be unpacked: {error}") from error
    except (expat.ExpatError, ValueError, LookupError) as error:
        # The last two: an encoding that expat does not know.
        if handler.root is None:
            return None
        raise XmlListError(str(error)) from error
    return handler.root


class _OtherRootError(Exception):
    pass


class _Handler:
    def __init__(
        self, xml_format: XmlFormat, add: Callable[[XmlElement], None], base_url: str
    ) -> None:
        self.root: str | None = None
        self._format = xml_format
        self._add = add
        self._record_path: list[str] = []
        self._depth = 0
        # Both end at the fields of a record: what is inside a field may be deep.
        self._path: list[str] = []
        self._bases = [base_url]
        self._record: XmlElement | None = None
        self._field: XmlElement | None = None
        self._text: list[str] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        prefix, _, name = tag.rpartition(":")
        self._depth += 1
        if self.root is None:
            self._check_root(name, attributes)
        if self._is_inside_field():
            return
        base = self._bases[-1]
        if "xml:base" in attributes:
            base = join_url(base, attributes["xml:base"]) or base
        self._path.append(name)
        self._bases.append(base)
        if self._path == self._record_path:
            self._record = XmlElement(name, prefix, attributes, base)
        elif self._record is not None and name in self._format.fields:
            self._field, self._text = XmlElement(name, prefix, attributes, base), []

    def end(self, _tag: str) -> None:
        if not self._is_inside_field():
            if self._record is not None:
                self._end_part(self._record)
            self._path.pop()
            self._bases.pop()
        self._depth -= 1

    def add_text(self, data: str) -> None:
        if self._field is not None:
            self._text.append(data)

    def refuse_entity(self, *_declaration: object) -> None:
        raise XmlListError("it declares entities")

    def _check_root(self, name: str, attributes: dict[str, str]) -> None:
        namespaces = self._format.namespaces.get(name)
        known = name in self._format.record_paths
        if not known or (namespaces and not namespaces & set(attributes.values())):
            raise _OtherRootError
        self.root, self._record_path = name, list(self._format.record_paths[name])

    def _is_inside_field(self) -> bool:
        return self._depth > len(self._record_path) + 1

    def _end_part(self, record: XmlElement) -> None:
        if self._path == self._record_path:
            self._add(record)
            self._record = None
        elif self._field is not None:
            self._field.text = " ".join("".join(self._text).split())
            if len(record.children) < _MAX_FIELDS:
                record.children.append(self._field)
            self._field = None


_SITEMAP = XmlFormat(
    record_paths={"urlset": ("urlset", "url"), "sitemapindex": ("sitemapindex", "sitemap")},
    fields=frozenset({"loc"}),
)


@dataclass(frozen=True, slots=True)
class Sitemap:
    """The locations in a sitemap, in its order."""

    locations: tuple[str, ...]
    is_index: bool


def parse_sitemap(content: bytes) -> Sitemap | None:
    """The sitemap in the bytes (gzip or not), or None when they are something else."""
    locations: list[str] = []
    root = read_records(
        content, _SITEMAP, lambda record: locations.extend(loc.text for loc in record.children)
    )
    return None if root is None else Sitemap(tuple(locations), root == "sitemapindex")


_TITLE_CHARS = 300
_FEED = XmlFormat(
    record_paths={
        "rss": ("rss", "channel", "item"),
        "RDF": ("RDF", "item"),
        "feed": ("feed", "entry"),
    },
    fields=frozenset({"title", "link", "guid", "id"}),
    # RSS 2.0 has no namespace.
    namespaces={
        "RDF": {"http://purl.org/rss/1.0/", "http://my.netscape.com/rdf/simple/0.9/"},
        "feed": {"http://www.w3.org/2005/Atom", "http://purl.org/atom/ns#"},
    },
)
_ALTERNATE = frozenset({"", "alternate", "http://www.iana.org/assignments/relation/alternate"})


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One entry; what it does not state is empty."""

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
            raise XmlListError("none of its entries has an http(s) link")
        if missing:
            count = len(self.entries)
            log.warning("%d of %d entries of %s have no http(s) link", missing, count, self.url)
        for entry in self.entries:
            name = entry.id or entry.url
            if entry.url is not None and name and name not in seen:
                seen.add(name)
                yield Listed(name, entry.url, entry.title)


def parse_feed(content: bytes, base_url: str) -> Feed | None:
    """The feed in the bytes (gzip or not), or None when they are something else."""
    entries: list[FeedEntry] = []
    root = read_records(
        content, _FEED, lambda record: entries.append(_read_entry(record)), base_url
    )
    return None if root is None else Feed(base_url, tuple(entries))


def _read_entry(record: XmlElement) -> FeedEntry:
    texts: dict[str, str] = {}
    links: list[str | None] = []
    guid_is_link = True
    # Children with another prefix are extensions: <media:title>, <atom:link>.
    for part in (child for child in record.children if child.prefix == record.prefix):
        texts[part.name] = texts.get(part.name) or part.text
        if part.name == "guid":
            guid_is_link = part.attributes.get("isPermaLink", "true").strip().lower() != "false"
        rel, href = part.attributes.get("rel", "").strip().lower(), part.attributes.get("href")
        is_atom = record.name == "entry"
        if part.name == "link" and is_atom and href and rel in _ALTERNATE:
            links.append(join_url(part.base_url, href))
    about = (value for key, value in record.attributes.items() if key.rpartition(":")[2] == "about")
    rdf_about = next(about, "").strip()
    guid, link = texts.get("guid", ""), texts.get("link") or rdf_about
    links += [join_url(record.base_url, link) if link else None, guid if guid_is_link else None]
    urls = filter(None, (normalise_url(link) for link in links if link))
    title = texts.get("title", "")[:_TITLE_CHARS].strip()
    return FeedEntry(guid or texts.get("id") or rdf_about, next(urls, None), title or None)
