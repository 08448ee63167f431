"""A text file with one URL per line as a source."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.crawl.filename import absolute_path, escape_undecodable
from penstock.crawl.listing import Listed
from penstock.crawl.url import normalise_url
from penstock.errors import ListingFailed

_MAX_LINE_BYTES = 8192


@dataclass(frozen=True, slots=True)
class UrlListListing:
    """The URLs of a file; blank lines and lines that start with # are left out."""

    path: Path
    kind: str = field(default="url_list", init=False)

    @property
    def name(self) -> str:
        return escape_undecodable(str(absolute_path(self.path)))

    @property
    def location(self) -> str:
        return self.name

    def list(self) -> Iterator[Listed]:
        seen: set[str] = set()
        try:
            for number, line in _lines(self.path):
                url = normalise_url(line)
                if url is None:
                    raise ListingFailed(f"{self.name}, line {number}: not an http(s) URL: {line}")
                if url not in seen:
                    seen.add(url)
                    yield Listed(url, url)
        except OSError as error:
            raise ListingFailed(f"could not read {self.name}: {error.strerror or error}") from error


def holds_only_urls(path: Path) -> bool:
    """Whether a regular file has at least one URL, and nothing but URLs and comments."""
    if not path.is_file():
        return False
    found = False
    try:
        for _, line in _lines(path):
            if normalise_url(line) is None:
                return False
            found = True
    except OSError:
        return False
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    # Lines are read with a limit because any file may be asked, also one without line ends.
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE_BYTES), b""), start=1):
            text = line.decode("utf-8-sig", "replace").strip()
            if text and not text.startswith("#"):
                yield number, text
