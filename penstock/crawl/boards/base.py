"""Shared by all job boards: their URLs, and reading their JSON without trusting its types."""

import html
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

import httpx

from penstock.crawl.boards.job import MEDIA_TYPE, BoardJob, render_job
from penstock.crawl.fetch import Fetcher
from penstock.crawl.listing import Listed
from penstock.crawl.urls import join_url, normalise_url, parse_url
from penstock.errors import DocumentFault, ListingFailed

_PAGE_PATH = r"/([^/]+)/?"
_EMBEDDED_PATH = "/embed/job_board"


@dataclass(frozen=True, slots=True)
class _Service:
    kind: str
    api: str
    params: dict[str, str]


_GREENHOUSE = _Service(
    "greenhouse", "https://boards-api.greenhouse.io/v1/boards/{}/jobs", {"content": "true"}
)
_LEVER_PARAMS = {"mode": "json", "skip": "0", "limit": "100"}
_LEVER = _Service("lever", "https://api.lever.co/v0/postings/{}", _LEVER_PARAMS)
_LEVER_EU = _Service("lever", "https://api.eu.lever.co/v0/postings/{}", _LEVER_PARAMS)
_ASHBY = _Service(
    "ashby", "https://api.ashbyhq.com/posting-api/job-board/{}", {"includeCompensation": "true"}
)
_PAGES = {
    "boards.greenhouse.io": _GREENHOUSE,
    "job-boards.greenhouse.io": _GREENHOUSE,
    # Only the pages have a region of their own; all boards answer at one API host.
    "boards.eu.greenhouse.io": _GREENHOUSE,
    "job-boards.eu.greenhouse.io": _GREENHOUSE,
    "jobs.lever.co": _LEVER,
    "jobs.eu.lever.co": _LEVER_EU,
    "jobs.ashbyhq.com": _ASHBY,
}
_APIS = {
    "boards-api.greenhouse.io": (_GREENHOUSE, r"/v1/boards/([^/]+)(?:/jobs)?/?"),
    "api.lever.co": (_LEVER, r"/v0/postings/([^/]+)/?"),
    "api.eu.lever.co": (_LEVER_EU, r"/v0/postings/([^/]+)/?"),
    "api.ashbyhq.com": (_ASHBY, r"/posting-api/job-board/([^/]+)/?"),
}


@dataclass(frozen=True, slots=True)
class BoardAddress:
    """A board at one of the known hosts."""

    kind: str
    company: str
    """The board's name at its host."""
    api_url: str


def find_board(url: str) -> BoardAddress | None:
    """The board whose page or JSON is at a URL; None for a single job, and for other URLs.

    Parameters stay, because some boards can be asked for a part of their jobs.
    """
    parsed = parse_url(url)
    if parsed is None or parsed.port is not None:
        return None
    service, path = _APIS.get(parsed.host) or (_PAGES.get(parsed.host), _PAGE_PATH)
    board = re.fullmatch(path, parsed.raw_path.decode().partition("?")[0])
    name = board[1] if board else ""
    # Greenhouse's page for frames in other sites has the board in a parameter.
    if board is None and service is _GREENHOUSE and parsed.path == _EMBEDDED_PATH:
        name = quote(parsed.params.get("for", ""), safe="")
    if service is None or not name:
        return None
    api_url = httpx.URL(service.api.format(name), params=parsed.params.merge(service.params))
    return BoardAddress(service.kind, unquote(name), str(api_url))


def find_company(url: str) -> str:
    """The board's name in the URL of the board or of one of its jobs; empty elsewhere."""
    parsed = parse_url(url)
    board = re.match(_PAGE_PATH, parsed.path) if parsed else None
    return board[1] if parsed and board and parsed.host in _PAGES else ""


# Characters that databases and UTF-8 refuse; JSON can hold all of them.
_REFUSED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")

_LARGEST_NUMBER = 10**15


class BoardError(Exception):
    """The JSON is not that of such a board."""


@dataclass(frozen=True, slots=True)
class BoardRecord:
    """A JSON object. A value of another type than asked for counts as missing."""

    values: Mapping[str, Any]

    def line(self, key: str) -> str:
        """A text on one line; empty when there is none."""
        return _clean_line(self.values.get(key))

    def lines(self, key: str) -> list[str]:
        """The texts of a list that are not empty."""
        return [line for value in self._list(key) if (line := _clean_line(value))]

    def long_text(self, key: str) -> str:
        """A long text; BoardError for another type, with which the posting would be lost."""
        value = self.values.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise BoardError(f"has a {key} that is not a text")
        return _REFUSED.sub("", value).strip()

    def identity(self, key: str) -> str:
        """A number or a text that identifies the object; empty when there is none."""
        value = self.values.get(key)
        return str(value) if isinstance(value, int) and value is not True else _clean_line(value)

    def title(self, key: str) -> str:
        """A text that must be there."""
        title = self.line(key)
        if not title:
            raise BoardError("has no title")
        return title

    def number(self, key: str) -> int | float | None:
        """A number of a sane size, whole where it can be, so that 5 and 5.0 are written alike."""
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if not abs(value) <= _LARGEST_NUMBER:
            return None
        return int(value) if value == int(value) else value

    def is_flag(self, key: str, flag: bool) -> bool:
        """Whether the value is this boolean; a missing one is neither."""
        return self.values.get(key) is flag

    def object(self, key: str) -> "BoardRecord":
        """The object under a key; an empty one when there is none."""
        value = self.values.get(key)
        return BoardRecord(value if isinstance(value, dict) else {})

    def objects(self, key: str) -> list["BoardRecord"]:
        """The objects of the list under a key."""
        return [BoardRecord(value) for value in self._list(key) if isinstance(value, dict)]

    def _list(self, key: str) -> list[Any]:
        value = self.values.get(key)
        return value if isinstance(value, list) else []


def _clean_line(value: Any) -> str:
    return " ".join(_REFUSED.sub("", value).split()) if isinstance(value, str) else ""


MAX_PAGES = 1_000
_NOT_FETCHED: Any = object()
_TITLE_CHARS = 300
# The key of a job's public page, which differs from board to board.
_URL_KEYS = {"greenhouse": "absolute_url", "lever": "hostedUrl", "ashby": "jobUrl"}


@dataclass(frozen=True, slots=True)
class BoardListing(ABC):
    """The jobs of a board, with their postings: nothing but the board's JSON is fetched."""

    location: str
    """The board's page or its JSON, normalised."""
    fetcher: Fetcher
    kind: str = field(default="", init=False)

    def list(self, document: Any = _NOT_FETCHED) -> Iterator[Listed]:
        """The jobs; `document` is the first JSON of the board when it was fetched already."""
        try:
            fetched = document is not _NOT_FETCHED
            yield from self._list(document if fetched else self._read(self._first_url()))
        except (DocumentFault, BoardError) as error:
            raise ListingFailed(f"could not list {self.location}: {error}") from error

    @abstractmethod
    def _entries(self, document: Any) -> Sequence[Any]:
        """The jobs in the JSON; BoardError when it has none of the expected form."""

    @abstractmethod
    def _job(self, entry: BoardRecord, job_id: str) -> BoardJob | None:
        """The job of an entry; None when it is not public."""

    def _next_url(self, _received: int, _in_all: int) -> str | None:
        """The URL of the next page; most boards have only one."""
        return None

    def _first_url(self) -> str:
        address = find_board(self.location)
        return address.api_url if address and address.kind == self.kind else self.location

    def _list(self, document: Any) -> Iterator[Listed]:
        seen: set[str] = set()
        in_all = 0
        for _ in range(MAX_PAGES):
            entries, known = self._entries(document), len(seen)
            kind = kind_of_jobs(entries)
            if kind not in (None, self.kind):
                raise BoardError(f"expected a {self.kind} board's JSON; this is a {kind} board's")
            yield from self._new_jobs(entries, in_all, seen)
            in_all += len(entries)
            url = self._next_url(len(entries), in_all)
            # A server that ignores the paging sends the same page again and again.
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

    def _read_job(self, number: int, value: Any) -> BoardJob | None:
        # A job left out would be taken for one that was withdrawn.
        entry = BoardRecord(value if isinstance(value, dict) else {})
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

    def _url(self, entry: BoardRecord) -> str:
        """The job's public page, or the board's where the job has none."""
        joined = join_url(self.location, entry.line(_URL_KEYS[self.kind]))
        return normalise_url(joined or "") or self.location

    def _company(self, job_url: str) -> str:
        address = find_board(self.location)
        return address.company if address else find_company(job_url)


def read_json(content: bytes) -> Any:
    """The JSON object or list that the bytes are, or None."""
    if content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def kind_of_jobs(entries: Sequence[Any]) -> str | None:
    """The kind of board that a list of jobs is from, by its keys; None when unknown."""
    for kind, mark in _URL_KEYS.items():
        if any(isinstance(entry, dict) and mark in entry for entry in entries):
            return kind
    return None


_TAG = re.compile(r"<[a-zA-Z/]")
# One that is never closed reaches to the end, which also keeps the search linear.
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
# These carry data or styles, or make the rest of the page part of them.
_UNWANTED = (
    *("base", "body", "embed", "form", "frameset", "head", "html", "iframe", "link", "main"),
    *("math", "meta", "noembed", "noframes", "noscript", "object", "plaintext", "script", "style"),
    *("svg", "template", "textarea", "title", "xmp"),
)
_REFUSED_TAG = re.compile(rf"<(?=/?(?:{'|'.join(_UNWANTED)})(?![a-z0-9-])|[!?])", re.IGNORECASE)


def safe_html(text: str) -> str:
    """The HTML without comments, and with unwanted tags escaped."""
    return _REFUSED_TAG.sub("&lt;", _COMMENT.sub("", text)).strip()


def unescape_html(text: str) -> str:
    """HTML that was escaped as a whole, unescaped; other HTML unchanged."""
    return text if _TAG.search(text) else html.unescape(text)


def text_to_html(text: str) -> str:
    """Plain text as HTML."""
    return "\n".join(f"<p>{html.escape(line.strip())}</p>" for line in text.splitlines() if line)


_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?!\d)", re.ASCII)


def read_day(text: str) -> str:
    """The date of an ISO timestamp, in its own time zone; empty when it is none."""
    day = _DAY.match(text)
    return day[0] if day else ""


def day_of_milliseconds(milliseconds: int | float | None) -> str:
    """The date, in UTC, of milliseconds since 1970; empty when there is none."""
    if milliseconds is None:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).date().isoformat()
    except (OverflowError, OSError, ValueError):
        return ""
