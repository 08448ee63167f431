"""What all job boards have in common as listings."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin

from penstock.crawl.boards.address import find_board, find_company
from penstock.crawl.boards.entry import BoardError, Entry
from penstock.crawl.boards.job import Job
from penstock.crawl.boards.page import MEDIA_TYPE, render_job
from penstock.crawl.fetch import Fetcher
from penstock.crawl.listing import Listed
from penstock.crawl.url import normalise_url
from penstock.errors import DocumentFault, ListingFailed

MAX_PAGES = 1_000
_TITLE_CHARS = 300
# The key of a job's public page, by which boards are told apart.
_MARKS = {"greenhouse": "absolute_url", "lever": "hostedUrl", "ashby": "jobUrl"}


@dataclass(frozen=True, slots=True)
class BoardListing(ABC):
    """The jobs of a board, with their postings: nothing but the board's JSON is fetched."""

    location: str
    """The board's page or its JSON, normalised."""
    fetcher: Fetcher
    kind: str = field(default="", init=False)

    @property
    def name(self) -> str:
        return self.location

    def list(self) -> Iterator[Listed]:
        with _explained(self.location):
            yield from self._list(self._read(self._first_url()))

    def list_document(self, document: Any) -> Iterator[Listed]:
        """The same, when the (first) answer of the board has been fetched already."""
        with _explained(self.location):
            yield from self._list(document)

    @abstractmethod
    def _entries(self, document: Any) -> Sequence[Any]:
        """The jobs in an answer, or a BoardError that says what was expected."""

    @abstractmethod
    def _job(self, entry: Entry, job_id: str) -> Job | None:
        """The job of an entry; None when the board does not show it."""

    def _next_url(self, _received: int, _in_all: int) -> str | None:
        """Where the board goes on after an answer with that many jobs; most answer once."""
        return None

    def _first_url(self) -> str:
        address = find_board(self.location)
        return address.api_url if address and address.kind == self.kind else self.location

    def _list(self, document: Any) -> Iterator[Listed]:
        seen: set[str] = set()
        in_all = 0
        for _ in range(MAX_PAGES):
            entries, known = self._entries(document), len(seen)
            _require_kind(entries, self.kind)
            yield from self._new_jobs(entries, in_all, seen)
            in_all += len(entries)
            url = self._next_url(len(entries), in_all)
            # A server that ignores the paging gives the same page for ever.
            if url is None or len(seen) == known:
                return
            document = self._read(url)
        raise BoardError(f"it has more than {MAX_PAGES} pages")

    def _new_jobs(self, entries: Sequence[Any], before: int, seen: set[str]) -> Iterator[Listed]:
        for number, value in enumerate(entries, start=before + 1):
            job = self._read_job(number, value)
            if job is not None and job.id not in seen:
                seen.add(job.id)
                title = job.title[:_TITLE_CHARS]
                yield Listed(job.id, job.url, title, content=render_job(job), media_type=MEDIA_TYPE)

    def _read_job(self, number: int, value: Any) -> Job | None:
        # A job left out would be taken for one that was withdrawn.
        entry = Entry(value if isinstance(value, dict) else {})
        job_id = entry.identity("id")
        if not job_id:
            raise BoardError(f"job {number} has no id; expected a {self.kind} board's JSON")
        try:
            return self._job(entry, job_id)
        except BoardError as error:
            raise BoardError(f"job {number}, with the id {job_id[:100]}, {error}") from error

    def _read(self, url: str) -> Any:
        document = read_json(self.fetcher.get(url).content)
        if document is None:
            raise BoardError(f"{url} is not JSON; expected a {self.kind} board's JSON")
        return document

    def _url(self, entry: Entry) -> str:
        """The job's public page, or the board's where the job has none."""
        try:
            joined = urljoin(self.location, entry.line(_MARKS[self.kind]))
        except ValueError:
            return self.location
        return normalise_url(joined) or self.location

    def _company(self, job_url: str) -> str:
        address = find_board(self.location)
        return address.company if address else find_company(job_url)


def read_title(entry: Entry, key: str) -> str:
    """The job's title, which it must have."""
    title = entry.line(key)
    if not title:
        raise BoardError("has no title")
    return title


def read_json(content: bytes) -> Any:
    """The JSON object or list that the bytes are, or None."""
    if content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def told_kind(entries: Sequence[Any]) -> str | None:
    """The kind of board that a list of jobs is from, as far as its keys tell."""
    for kind, mark in _MARKS.items():
        if any(isinstance(entry, dict) and mark in entry for entry in entries):
            return kind
    return None


def _require_kind(entries: Sequence[Any], kind: str) -> None:
    told = told_kind(entries)
    if told not in (None, kind):
        raise BoardError(f"expected a {kind} board's JSON; this is a {told} board's")


@contextmanager
def _explained(location: str) -> Iterator[None]:
    try:
        yield
    except (DocumentFault, BoardError) as error:
        raise ListingFailed(f"could not list {location}: {error}") from error
