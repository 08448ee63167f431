"""Where boards are: their public pages, and the JSON behind them."""

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

import httpx

from penstock.crawl.url import parse_url

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
    """The board that a URL is the page or the JSON of; None for one job of it, and elsewhere.

    Parameters stay, because some boards can be asked for a part of their jobs.
    """
    parsed = parse_url(url)
    if parsed is None:
        return None
    service, path = _service_at(parsed)
    board = re.fullmatch(path, parsed.raw_path.decode().partition("?")[0])
    name = board[1] if board else _embedded_board(parsed)
    if service is None or not name or (board is None and service is not _GREENHOUSE):
        return None
    api_url = httpx.URL(service.api.format(name), params=parsed.params.merge(service.params))
    return BoardAddress(service.kind, unquote(name), str(api_url))


def find_company(url: str) -> str:
    """The board's name in the URL of the board or of one of its jobs; empty elsewhere."""
    parsed = parse_url(url)
    board = re.match(_PAGE_PATH, parsed.path) if parsed else None
    return board[1] if parsed and board and parsed.host in _PAGES else ""


def _service_at(url: httpx.URL) -> tuple[_Service | None, str]:
    if url.port is not None:
        return None, ""
    return _APIS.get(url.host) or (_PAGES.get(url.host), _PAGE_PATH)


def _embedded_board(url: httpx.URL) -> str:
    """Greenhouse's page for frames in other sites names the board in a parameter."""
    return quote(url.params.get("for", ""), safe="") if url.path == _EMBEDDED_PATH else ""
