"""The main content of a web page, or all of its visible text when there is no such thing."""

from dataclasses import dataclass
from typing import Any

from penstock.documents import ExtractedText, RawDocument
from penstock.text.charsets import decode_text
from penstock.text.html.content import CONTENT_ELEMENTS, main_content
from penstock.text.html.tree import body_of, has_more_elements, parse_tree
from penstock.text.html.visible import visible_lines
from penstock.text.kinds import HTML


@dataclass(frozen=True, slots=True)
class Page:
    """A decoded page and its parsed tree."""

    source: str
    tree: Any


def read_page(raw: RawDocument) -> Page:
    """Decode and parse a page; anything at all can be parsed as HTML."""
    source = decode_text(raw.content, raw.media_type, markup=True)
    return Page(source, parse_tree(source))


def extract_page(page: Page) -> ExtractedText:
    """Main content and title of a page; its tree stays as it is."""
    body = body_of(page.tree)
    text = "" if has_more_elements(page.source, CONTENT_ELEMENTS) else main_content(body)
    return ExtractedText(text=text or visible_lines(body), title=page_title(page), media_type=HTML)


def page_title(page: Page) -> str | None:
    """The title made for sharing has no site name in it, so it goes first."""
    shared = (
        meta.get("content", "")
        for meta in page.tree.iter("meta")
        if meta.get("property") == "og:title"
    )
    written = ("".join(found.itertext()) for found in page.tree.iter("title"))
    heading = ("".join(found.itertext()) for found in page.tree.iter("h1"))
    found = (next(titles, "").strip() for titles in (shared, written, heading))
    return next(filter(None, found), None)


def visible_text(source: str) -> str:
    """Every text a reader would see inside the site's frame, one block per line."""
    return visible_lines(body_of(parse_tree(source)))
