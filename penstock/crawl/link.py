"""The links on a page."""

from collections.abc import Iterator
from urllib.parse import urljoin

from penstock.crawl.url import normalise_url


def page_links(content: bytes, media_type: str | None, page_url: str) -> Iterator[str]:
    """Where the page's links lead, normalised, each once, in the order of the page."""
    from selectolax.lexbor import LexborHTMLParser

    if media_type is not None and "html" not in media_type.lower():
        return
    tree = LexborHTMLParser(content)
    base_node = tree.css_first("base[href]")
    base = _join(page_url, base_node.attributes.get("href") if base_node else None) or page_url
    seen: set[str] = set()
    for node in tree.css("a[href]"):
        link = normalise_url(_join(base, node.attributes.get("href")) or "")
        if link is not None and link not in seen:
            seen.add(link)
            yield link


def _join(base: str, reference: str | None) -> str | None:
    try:
        return urljoin(base, (reference or "").strip())
    except ValueError:
        return None
