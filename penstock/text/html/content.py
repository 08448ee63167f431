"""The main content of a page, found by trafilatura in a tree made small for it."""

import re
from copy import copy
from functools import cache
from typing import Any

from penstock.text.html.tables import unwrap_layout_tables
from penstock.text.html.tree import find_hidden
from penstock.text.html.visible import visible_lines

# Above this the rules would take seconds, and they are not made for such pages.
CONTENT_ELEMENTS = 50_000
# A page whose main content is shorter than this may be no article at all (a list, a form, a table).
LITTLE_TEXT = 200
# So may one whose content leaves most of the words outside links unsaid, unless it is long.
ENOUGH_TEXT = 3_000
LITTLE_SHARE = 0.2
# A list of this many links and hardly any other word leads elsewhere.
MENU_LINKS = 5
MENU_SHARE = 0.9

_COMMENTS = ".//*[contains(@id, 'comment') or contains(@class, 'comment')]"
_EMPTY = ".//*[not(*) and not(self::br or self::hr or self::td or self::th or normalize-space())]"
_TABLE_RULE = re.compile(r"^\|(---\|)+\n", re.MULTILINE)
_TABLE_ROW = re.compile(r"^\| (.*?) *\| *$", re.MULTILINE)


def main_content(body: Any) -> str:
    """The text that the page is about, or nothing when it is about all of its text."""
    content = copy(body)
    for hidden in find_hidden(content):
        hidden.drop_tree()
    _prune(content)
    text = _extract(content)
    return text if _is_main(text, content, body) else ""


def _prune(content: Any) -> None:
    """Take out what the rules would never let through: they are quicker on a small tree."""
    from lxml import etree  # type: ignore[import-untyped]

    dropped, unwrapped = _never_content()
    etree.strip_elements(content, *dropped, with_tail=False)
    etree.strip_tags(content, *unwrapped)
    # The rules drop an empty element together with the text after it, so that goes first. Twice,
    # for the elements that hold nothing but such.
    for _ in range(2):
        for element in _find_empty()(content):
            element.drop_tree()
    for listing in filter(_is_menu, list(content.iter("ul", "ol"))):
        listing.drop_tree()
    unwrap_layout_tables(content)


@cache
def _find_empty() -> Any:
    from lxml.etree import XPath  # type: ignore[import-untyped]

    return XPath(_EMPTY)


def _is_menu(listing: Any) -> bool:
    links = listing.findall(".//a")
    if len(links) < MENU_LINKS or next(listing.iterancestors("main"), None) is not None:
        return False
    return sum(map(_count_words, links)) >= MENU_SHARE * _count_words(listing)


def _count_words(element: Any) -> int:
    return len("".join(element.itertext()).split())


@cache
def _never_content() -> tuple[tuple[str, ...], tuple[str, ...]]:
    from trafilatura.settings import MANUALLY_CLEANED, MANUALLY_STRIPPED

    # The rules look into these before they drop them, if they do.
    looked_into = {"form", "figure", "math"}
    dropped = (tag for tag in MANUALLY_CLEANED if tag not in looked_into)
    return (*dropped, "header"), tuple(MANUALLY_STRIPPED)


def _extract(content: Any) -> str:
    from trafilatura import bare_extraction

    try:
        document: Any = bare_extraction(content, options=_options())
    except MemoryError:
        raise
    except Exception:
        return ""  # odd trees break its rules in many ways; the visible text is still there
    text = (document.text if document else None) or ""
    return _plain_rows(text) if "|" in text else text


def _plain_rows(text: str) -> str:
    """Rows as other formats give them: ` | ` between cells, and nothing around them."""
    return _TABLE_ROW.sub(r"\1", _TABLE_RULE.sub("", text)).replace("\\|", "|")


@cache
def _options() -> Any:
    from trafilatura.settings import Extractor

    # Precision without comments measured best on marked articles, and is the fastest.
    return Extractor(output_format="python", fast=True, comments=False, precision=True)


def _is_main(text: str, content: Any, body: Any) -> bool:
    if len(text) >= ENOUGH_TEXT:
        return True
    words = _own_words_length(content) if _names_article(body) else len(visible_lines(body))
    return len(text) >= max(LITTLE_TEXT, LITTLE_SHARE * words)


def _names_article(body: Any) -> bool:
    """Whether the page says where its main part is, or that it is an article."""
    if next(body.iter("article", "main"), None) is not None:
        return True
    metas = body.getroottree().iter("meta")
    kinds = (meta.get("content", "") for meta in metas if meta.get("property") == "og:type")
    return any(kind.lower() == "article" for kind in kinds)


def _own_words_length(content: Any) -> int:
    """The length of the page's text without its links and its readers' comments.

    What is marked as the main part counts with its links: it may be a list of them.
    """
    from lxml import etree

    for comments in content.xpath(_COMMENTS):
        comments.drop_tree()
    marked = max(map(_text_length, content.iter("main")), default=0)
    etree.strip_elements(content, "a", with_tail=False)
    return max(marked, _text_length(content))


def _text_length(element: Any) -> int:
    return len(" ".join("".join(element.itertext()).split()))
