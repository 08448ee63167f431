"""The links on a page."""

from dataclasses import dataclass
from urllib.parse import urljoin

from penstock.crawl.url import normalise_url

_TEXT_CHARS = 300


@dataclass(frozen=True, slots=True)
class Link:
    """Where a link leads, and what it is called on the page."""

    url: str
    """Normalised."""
    text: str | None = None


def page_links(content: bytes, media_type: str | None, page_url: str) -> list[Link]:
    """The page's links, each URL once, in the order of the page.

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
    return [Link(url, text or None) for url, text in texts.items()]


def join_url(base: str, reference: str | None) -> str | None:
    """The URL that a reference means on a page; None when it means none."""
    try:
        return urljoin(base, (reference or "").strip())
    except ValueError:
        return None


def _clean_text(text: str) -> str:
    """One line, or nothing where the page's encoding was not understood."""
    line = " ".join("".join(filter(str.isprintable, word)) for word in text.split())
    return "" if "\ufffd" in line else line.strip()[:_TEXT_CHARS].strip()
