"""Parsing and normalising URLs, and the links on a page."""

from functools import lru_cache
from urllib.parse import urljoin, urlsplit

import httpx

WEB_SCHEMES = frozenset({"http", "https"})
_MAX_PORT = 65_535
# A page's URL is parsed several times: when it is listed, before and after its request.
_CACHED = 512


@lru_cache(_CACHED)
def parse_url(text: str) -> httpx.URL | None:
    """The parsed URL, or None when the text is not a valid http(s) URL."""
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


@lru_cache(_CACHED)
def normalise_url(text: str) -> str | None:
    """Lower-case host, no default port, no fragment, no `..`, no credentials; None if not http(s).

    Credentials are dropped because the result is stored and shown.
    """
    url = parse_url(text)
    if url is None:
        return None
    return f"{url.scheme}://{url.netloc.decode()}{url.raw_path.decode()}"


@lru_cache(_CACHED)
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


_TEXT_CHARS = 300


def page_links(
    content: bytes, media_type: str | None, page_url: str
) -> list[tuple[str, str | None]]:
    """The page's links (normalised) with their texts, each once, in the order of the page.

    Of several texts the longest is taken: the others are "Apply" and "Read more".
    """
    from selectolax.lexbor import LexborHTMLParser

    if media_type is not None and "html" not in media_type.lower():
        return []
    tree = LexborHTMLParser(content)
    base_node = tree.css_first("base[href]")
    base = join_url(page_url, base_node.attributes.get("href") if base_node else None) or page_url
    texts: dict[str, str] = {}
    for node in tree.css("a[href]"):
        url = normalise_url(join_url(base, node.attributes.get("href")) or "")
        if url is not None:
            texts[url] = max(texts.get(url, ""), _clean_text(node.text(separator=" ")), key=len)
    return [(url, text or None) for url, text in texts.items()]


def join_url(base: str, reference: str | None) -> str | None:
    """The absolute URL of a reference on a page; None when it is invalid."""
    try:
        return urljoin(base, (reference or "").strip())
    except ValueError:
        return None


def _clean_text(text: str) -> str:
    """One line; empty where the page's encoding was not understood."""
    line = " ".join("".join(filter(str.isprintable, word)) for word in text.split())
    return "" if "\ufffd" in line else line.strip()[:_TEXT_CHARS].strip()
