"""Sitemap files: which pages, or which further sitemaps, they name."""

from dataclasses import dataclass
from xml.parsers import expat

from penstock.crawl.compression import CompressionError, gunzip_whole

# The sitemap protocol allows 50 MiB, unpacked.
MAX_BYTES = 50 * 1024 * 1024
_ENTRIES = {"urlset": "url", "sitemapindex": "sitemap"}


class SitemapError(Exception):
    """The bytes begin as a sitemap but cannot be read as one."""


@dataclass(frozen=True, slots=True)
class Sitemap:
    """The locations in a sitemap, in its order."""

    locations: tuple[str, ...]
    is_index: bool


def parse_sitemap(content: bytes) -> Sitemap | None:
    """The sitemap that the bytes are (gzip or not), or None when they are something else."""
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    # Entities are of no use in a sitemap, and a few lines of them can unpack to gigabytes.
    parser.EntityDeclHandler = reader.refuse_entity
    try:
        parser.Parse(_unpacked(content), True)
    except _OtherContentError:
        return None
    except (expat.ExpatError, ValueError, LookupError) as error:
        # The last two: an encoding that the parser does not know.
        if reader.root is None:
            return None
        raise SitemapError(str(error)) from error
    return Sitemap(tuple(reader.locations), reader.root == "sitemapindex")


class _OtherContentError(Exception):
    pass


class _Reader:
    def __init__(self) -> None:
        self.root: str | None = None
        self.locations: list[str] = []
        self._path: list[str] = []
        self._text: list[str] | None = None

    def start(self, tag: str, _attributes: dict[str, str]) -> None:
        # Prefixes vary, so they are ignored; the place in the tree tells <image:loc> apart.
        name = tag.rpartition(":")[2]
        if self.root is None:
            if name not in _ENTRIES:
                raise _OtherContentError
            self.root = name
        self._path.append(name)
        if self._path == [self.root, _ENTRIES[self.root], "loc"]:
            self._text = []

    def end(self, _tag: str) -> None:
        if self._text is not None:
            self.locations.append("".join(self._text).strip())
            self._text = None
        self._path.pop()

    def text(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def refuse_entity(self, *_declaration: object) -> None:
        raise SitemapError("it declares entities")


def _unpacked(content: bytes) -> bytes:
    try:
        return gunzip_whole(content, MAX_BYTES)
    except CompressionError as error:
        raise SitemapError(f"its compression cannot be used: {error}") from error
