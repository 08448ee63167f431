"""URLs in one spelling, so that the same page is never two documents."""

from functools import lru_cache
from urllib.parse import urlsplit

import httpx

WEB_SCHEMES = frozenset({"http", "https"})
_MAX_PORT = 65_535


# A page's address is looked at several times on its way: in the list, before and after the request.
_REMEMBERED = 512


@lru_cache(_REMEMBERED)
def parse_url(text: str) -> httpx.URL | None:
    """The http(s) URL that the text is, or None."""
    if not text.isprintable() or " " in text:
        return None
    scheme, separator, rest = text.partition("://")
    try:
        # httpx drops the default port only after a scheme in lower case.
        url = httpx.URL(scheme.lower() + separator + rest)
    except (httpx.InvalidURL, UnicodeError):
        return None
    # httpx escapes what cannot be in a host name; no real one holds a per cent sign.
    valid_host = url.host and "%" not in url.host and (url.port or 0) <= _MAX_PORT
    return url if valid_host and url.scheme in WEB_SCHEMES else None


@lru_cache(_REMEMBERED)
def normalise_url(text: str) -> str | None:
    """Lower-case host, no default port, no fragment, no `..`, no credentials; None if not http(s).

    Credentials are dropped because the result is stored and shown.
    """
    url = parse_url(text)
    if url is None:
        return None
    return f"{url.scheme}://{url.netloc.decode()}{url.raw_path.decode()}"


@lru_cache(_REMEMBERED)
def root_url(url: str) -> str:
    """The root of a URL's site, with its slash."""
    parsed = httpx.URL(url)
    return f"{parsed.scheme}://{parsed.netloc.decode()}/"


def is_below(url: str, start: str) -> bool:
    """Whether a URL is on the start's host, at or below its path (both normalised)."""
    candidate, base = urlsplit(url), urlsplit(start)
    if candidate.hostname != base.hostname:
        return False
    return candidate.path == base.path or candidate.path.startswith(_folder_of(base.path))


def _folder_of(path: str) -> str:
    """`/jobs` and `/jobs/` cover `/jobs/…`; a file such as `/jobs/index.html` covers its folder."""
    parent, _, last = path.rpartition("/")
    if "." in last:
        return parent + "/"
    return path.rstrip("/") + "/"
