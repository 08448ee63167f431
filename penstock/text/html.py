"""The main content of a web page, or all of its visible text when there is no such thing."""

import re
from dataclasses import dataclass
from typing import Any

from penstock.documents import ExtractedText, RawDocument
from penstock.text.charsets import decode_text
from penstock.text.kinds import HTML

# A page whose main content is shorter than this may be no article at all (a list, a form, a table).
LITTLE_TEXT = 200

# Never part of the text; without them the content rules have far fewer elements to look at.
_INVISIBLE = ("style", "svg", "noscript", "template", "iframe", "canvas", "select", "button")
_UNREAD = "script, style, svg, noscript, template, iframe, canvas, select, button, head"
# What frames every page of a site. A header may also stand in an article, where it is content.
_FRAME = (
    "nav, footer, body > header, body > div > header, "
    "[role=navigation], [role=banner], [role=contentinfo]"
)
_BLOCKS = (
    "address, article, aside, blockquote, br, dd, div, dl, dt, fieldset, figcaption, figure, "
    "footer, form, h1, h2, h3, h4, h5, h6, header, hr, li, main, nav, ol, p, pre, section, table, "
    "tr, ul"
)
# A private-use character: unlike a line end, it cannot be part of the page's own white space.
_BREAK = "\ue000"
# What is left of `<li><p>…` when the paragraph starts a line of its own.
_LONE_BULLETS = re.compile(r"^(-\n)+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Page:
    """A decoded page and its parsed tree."""

    source: str
    tree: Any


def read_page(raw: RawDocument) -> Page:
    """Decode and parse a page; anything at all can be parsed as HTML."""
    from lxml import etree, html  # type: ignore[import-untyped]

    source = decode_text(raw.content, raw.media_type, markup=True)
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    try:
        tree = html.document_fromstring(source.encode("utf-8", "ignore"), parser=parser)
    except etree.ParserError:
        tree = html.document_fromstring("<html></html>")
    return Page(source, tree)


def extract_page(page: Page) -> ExtractedText:
    """Main content and title of a page."""
    title = page_title(page)
    text = _main_content(page)
    if len(text) < LITTLE_TEXT:
        text = max(text, visible_text(page.source), key=len)
    return ExtractedText(text=text, title=title, media_type=HTML)


def page_title(page: Page) -> str | None:
    """The title made for sharing has no site name in it, so it goes first."""
    places = (
        "string(//meta[@property='og:title']/@content)",
        "string(//head/title | //title)",
        "string(//h1)",
    )
    return next((title for place in places if (title := page.tree.xpath(place).strip())), None)


def visible_text(source: str) -> str:
    """Every text a reader would see inside the site's frame, one block per line."""
    return _visible(source, f"{_UNREAD}, {_FRAME}") or _visible(source, _UNREAD)


def _visible(source: str, unread: str) -> str:
    from selectolax.lexbor import LexborHTMLParser

    document = LexborHTMLParser(source)
    for node in document.css(unread):
        node.decompose()
    for node in document.css(_BLOCKS):
        node.insert_before(_BREAK)
        node.insert_after(_BREAK)
    for node in document.css("li"):
        node.insert_before("- ")
    for node in document.css("td, th"):
        node.insert_after(" ")
    pieces = document.text().split(_BREAK) if document.body else []
    lines = filter(None, (" ".join(piece.split()) for piece in pieces))
    return _LONE_BULLETS.sub("- ", "\n".join(lines)).removesuffix("\n-")


def _main_content(page: Page) -> str:
    from lxml import etree
    from trafilatura import extract

    for script in page.tree.xpath("//script[not(@type='application/ld+json')]"):
        script.drop_tree()
    etree.strip_elements(page.tree, *_INVISIBLE, with_tail=False)
    try:
        # Precision without comments measured best on marked articles, and is the fastest.
        return extract(page.tree, fast=True, include_comments=False, favor_precision=True) or ""
    except MemoryError:
        raise
    except Exception:
        return ""  # odd trees break its rules in many ways; the visible text is still there
