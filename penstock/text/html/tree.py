"""The tree of a page: of any page at all, however large, deep or broken it is."""

import re
from functools import cache
from html import escape, unescape
from typing import Any

# Some 300 bytes each in a tree. What has more was made by a machine, and not for readers.
TREE_ELEMENTS = 1_000_000

# An unclosed script hides the rest of the page, as it does in a browser.
_UNREAD = re.compile(
    r"<(script|style)\b.*?(?:</\1[^<>]*>|\Z)|<!--.*?(?:-->|\Z)", re.DOTALL | re.IGNORECASE
)
_TAG = re.compile(r"<[^<>]*>")
_HIDING = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)
_WHOLE = ("html", "body")
# A tree takes them in from a page, and then refuses to move the text that holds them.
_CONTROLS = bytes([*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20)])
_NONCHARACTERS = ("\ufffe".encode(), "\uffff".encode())


def parse_tree(source: str) -> Any:
    """The root element; never None, and with all the text of the page below it."""
    if has_more_elements(source, TREE_ELEMENTS):
        return _parse_bare(source)
    parser = _new_parser()
    tree = _parse(source, parser)
    # libxml2 stops at 2048 levels, and says no word of what comes after.
    return _parse_bare(source) if _stopped_early(parser) else tree


def body_of(tree: Any) -> Any:
    """The body, or the whole tree of a page that has none."""
    body = tree.find("body")
    return tree if body is None else body


def has_more_elements(source: str, most: int) -> bool:
    """Whether the page has more elements than this, told without parsing it."""
    # The shortest element takes three characters; most are closed, which takes a second bracket.
    return len(source) > 3 * most and source.count("<") > 2 * most


def is_hidden(element: Any) -> bool:
    """Whether the element's own attributes keep it from being shown, with all that is in it.

    A whole page is hidden only until its scripts have run. Nor is `aria-hidden` a sign: what it
    keeps from those who listen is shown to those who look.
    """
    hidden = element.get("hidden")
    if hidden is not None and hidden.lower() != "until-found":
        return element.tag not in _WHOLE
    style = element.get("style")
    return bool(style and _HIDING.search(style)) and element.tag not in _WHOLE


def find_hidden(root: Any) -> list[Any]:
    """The hidden elements below the root."""
    return list(filter(is_hidden, _find_suspects()(root)))


@cache
def _find_suspects() -> Any:
    from lxml.etree import XPath  # type: ignore[import-untyped]

    return XPath(".//*[@hidden or @style]")


def _parse(source: str, parser: Any) -> Any:
    from lxml import etree, html  # type: ignore[import-untyped]

    content = source.encode("utf-8", "ignore").translate(None, _CONTROLS)
    for refused in _NONCHARACTERS:
        content = content.replace(refused, b"")
    try:
        return html.document_fromstring(content, parser=parser)
    except etree.ParserError:
        return html.document_fromstring("<html></html>")


def _parse_bare(source: str) -> Any:
    """A flat page of the same text."""
    text = unescape(_TAG.sub("\n", _UNREAD.sub("\n", source)))
    lines = "\n".join(filter(None, map(str.strip, text.split("\n"))))
    return _parse(f"<html><body><pre>{escape(lines)}</pre></body></html>", _new_parser())


def _new_parser() -> Any:
    from lxml import html

    parser = html.HTMLParser(
        encoding="utf-8",
        remove_comments=True,
        remove_pis=True,
        collect_ids=False,
        huge_tree=True,
    )
    parser.set_element_class_lookup(_one_class())
    return parser


@cache
def _one_class() -> Any:
    """One class for all elements: lxml.html's own choice by name costs a call for each."""
    from lxml import etree, html

    return etree.ElementDefaultClassLookup(element=html.HtmlElement)


def _stopped_early(parser: Any) -> bool:
    from lxml.etree import ErrorTypes

    fatal = parser.error_log.filter_from_fatals()
    return any(entry.type == ErrorTypes.ERR_RESOURCE_LIMIT for entry in fatal)
