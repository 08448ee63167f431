"""Web pages: their tree, their visible text, and their main content."""

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

from penstock.documents import ExtractedText, RawDocument
from penstock.text.charsets import decode_text
from penstock.text.media_types import HTML

# Some 300 bytes each in a tree. Pages with more are not made for readers.
TREE_ELEMENTS = 1_000_000

# An unclosed script hides the rest of the page, as it does in a browser.
_SCRIPTS = re.compile(
    r"<(script|style)\b.*?(?:</\1[^<>]*>|\Z)|<!--.*?(?:-->|\Z)", re.DOTALL | re.IGNORECASE
)
_TAG = re.compile(r"<[^<>]*>")
_HIDING = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)
_WHOLE = ("html", "body")
# lxml parses these from a page, and then refuses to copy text that has them.
_CONTROLS = bytes([*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20)])
_NONCHARACTERS = ("\ufffe", "\uffff")


def parse_tree(source: str) -> Any:
    """The root element, with all the text of the page below it."""
    from lxml.etree import ErrorTypes  # type: ignore[import-untyped]

    if not has_more_elements(source, TREE_ELEMENTS):
        parser = _new_parser()
        tree = _parse(source, parser)
        # libxml2 stops at 2048 levels and drops what comes after.
        fatal = parser.error_log.filter_from_fatals()
        if all(entry.type != ErrorTypes.ERR_RESOURCE_LIMIT for entry in fatal):
            return tree
    # A page of the same text without structure.
    text = html.unescape(_TAG.sub("\n", _SCRIPTS.sub("\n", source)))
    lines = html.escape("\n".join(filter(None, map(str.strip, text.split("\n")))))
    return _parse(f"<html><body><pre>{lines}</pre></body></html>", _new_parser())


def body_of(tree: Any) -> Any:
    """The body, or the whole tree of a page that has none."""
    body = tree.find("body")
    return tree if body is None else body


def has_more_elements(source: str, most: int) -> bool:
    """Whether the page has more elements than this, estimated without parsing it."""
    # The shortest element takes three characters; most are closed, which takes a second bracket.
    return len(source) > 3 * most and source.count("<") > 2 * most


def is_hidden(element: Any) -> bool:
    """Whether the element's own attributes hide it with all that is in it.

    A whole page is hidden only until its scripts have run. `aria-hidden` hides from screen readers
    only.
    """
    hidden = element.get("hidden")
    if hidden is not None and hidden.lower() != "until-found":
        return element.tag not in _WHOLE
    style = element.get("style")
    return bool(style and _HIDING.search(style)) and element.tag not in _WHOLE


def find_hidden(root: Any) -> list[Any]:
    """The hidden elements below the root."""
    return list(filter(is_hidden, find_all(".//*[@hidden or @style]")(root)))


@cache
def find_all(path: str) -> Any:
    """A compiled XPath expression."""
    from lxml.etree import XPath

    return XPath(path)


def _parse(source: str, parser: Any) -> Any:
    from lxml.etree import ParserError
    from lxml.html import document_fromstring  # type: ignore[import-untyped]

    if not source.isascii():
        # Looked for in characters: in bytes that takes longer than parsing a small page.
        for refused in filter(source.__contains__, _NONCHARACTERS):
            source = source.replace(refused, "")
    content = source.encode("utf-8", "ignore").translate(None, _CONTROLS)
    try:
        return document_fromstring(content, parser=parser)
    except ParserError:
        return document_fromstring("<html></html>")


def _new_parser() -> Any:
    from lxml.etree import ElementDefaultClassLookup
    from lxml.html import HtmlElement, HTMLParser

    parser = HTMLParser(
        encoding="utf-8",
        remove_comments=True,
        remove_pis=True,
        collect_ids=False,
        huge_tree=True,
    )
    # One class for all elements: lxml.html's choice by tag costs a call for each.
    parser.set_element_class_lookup(ElementDefaultClassLookup(element=HtmlElement))
    return parser


HEADINGS = {f"h{level}": level for level in range(1, 7)}
# Elements that start and end a line.
BLOCKS = frozenset(
    (
        *(*HEADINGS, "address", "article", "aside", "blockquote", "body", "br", "caption", "dd"),
        *("details", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form"),
        *("header", "hr", "html", "legend", "li", "main", "nav", "ol", "p", "pre", "section"),
        *("summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul"),
    )
)
# Elements whose text is for programs, or is shown only on request.
SKIPPED = frozenset(
    (
        *("audio", "canvas", "head", "iframe", "noscript", "object", "script", "select", "style"),
        *("svg", "template", "textarea", "video"),
    )
)


CELLS = ("td", "th")
_BLOCKS = ("div", "p", "ul", "ol", "table", "h1", "h2", "h3", "h4", "section", "article", "pre")


def _is_line(row: Any) -> bool:
    """Whether it is a row of short cells, which makes one line."""
    cells = [cell for cell in row if cell.tag in CELLS]
    return len(cells) > 1 and not any(map(_holds_blocks, cells))


def unwrap_layout_tables(content: Any) -> None:
    """Turn the tables that only lay out the page into div elements."""
    for table in list(content.iter("table")):
        if any(map(_holds_blocks, table.iter(*CELLS))):
            # The table, its rows and its cells, without tables inside them.
            rows = [row for row in table.iter("tr") if next(row.iterancestors("table")) is table]
            cells = (cell for row in rows for cell in row if cell.tag in CELLS)
            for part in [table, *rows, *cells]:
                part.tag = "div"


def _holds_blocks(cell: Any) -> bool:
    blocks = cell.iter(*_BLOCKS)
    return next(blocks, None) is not None and next(blocks, None) is not None


_NOT_TEXT = SKIPPED | {"button"}
# Navigation that every page of a site has. A header inside an article is content.
_FRAME = frozenset({"nav", "footer"})
_FRAME_ROLES = frozenset({"navigation", "banner", "contentinfo"})
# A private-use character: unlike a line end, it cannot be part of the page's own white space.
_BREAK = "\ue000"
_LINK, _LINK_END = "\ue001", "\ue002"
_LINKED = re.compile(f"{_LINK}([^{_LINK_END}]*){_LINK_END}?")
# From `<li><p>…`, where the paragraph starts a line of its own.
_LONE_BULLETS = re.compile(r"^(-\n)+", re.MULTILINE)


def visible_lines(body: Any) -> str:
    """The text without the site's navigation; with it on a page that has nothing else.

    When all of it is hidden, a script would show it: then hidden text counts, too.
    """
    return (
        _Lines(body, framed=True).read()
        or _Lines(body, framed=False).read()
        or _Lines(body, framed=False, shown=False).read()
    )


class _Lines:
    """Collects the lines of a page."""

    def __init__(self, body: Any, *, framed: bool, shown: bool = True, dense: bool = False) -> None:
        self._body = body
        self._framed = framed
        self._shown = shown
        self._dense = dense
        """Only the run of lines with the most text is wanted, and links are marked to find it."""
        self._pieces: list[str] = []
        self._row: Any = None
        """The row being read, when it is one line of a table."""
        self._verbatim: Any = None
        """The element being read whose line ends count."""

    def read(self) -> str:
        from lxml import etree  # type: ignore[import-untyped]

        walk = etree.iterwalk(self._body, events=("start", "end"))
        for event, element in walk:
            if event == "end":
                self._leave(element)
            elif self._is_skipped(element):
                walk.skip_subtree()
            else:
                self._enter(element)
        pieces = (" ".join(piece.split()) for piece in "".join(self._pieces).split(_BREAK))
        lines = list(filter(None, pieces))
        text = "\n".join(_find_densest(lines) if self._dense else lines)
        return _LONE_BULLETS.sub("- ", text).removesuffix("\n-")

    def _is_skipped(self, element: Any) -> bool:
        return (
            element.tag in _NOT_TEXT
            or (self._shown and is_hidden(element))
            or (self._framed and self._is_frame(element))
        )

    def _is_frame(self, element: Any) -> bool:
        if element.tag in _FRAME or element.get("role") in _FRAME_ROLES:
            return True
        if element.tag != "header":
            return False
        parent = element.getparent()
        return parent is self._body or (parent.tag == "div" and parent.getparent() is self._body)

    def _enter(self, element: Any) -> None:
        tag = element.tag
        if tag == "tr" and self._row is None and _is_line(element):
            self._pieces.append(_BREAK)
            self._row = element
        elif tag in BLOCKS and self._row is not None:
            between = tag in CELLS and element.getprevious() is not None
            self._pieces.append(" | " if between else " ")
        elif tag in BLOCKS:
            self._pieces.append(_BREAK)
        if tag == "li":
            self._pieces.append("- ")
        if self._dense and tag == "a":
            self._pieces.append(_LINK)
        if tag == "pre" and self._verbatim is None:
            self._verbatim = element
        self._write(element.text)

    def _leave(self, element: Any) -> None:
        if element is self._row:
            self._row = None
        if element is self._verbatim:
            self._verbatim = None
        if element.tag in BLOCKS:
            self._pieces.append(_BREAK if self._row is None else " ")
        elif element.tag == "span" and not element.tail:
            # Styles separate such neighbours where the source does not.
            self._pieces.append(" " if element.getnext() is not None else "")
        if self._dense and element.tag == "a":
            self._pieces.append(_LINK_END)
        if element is not self._body:
            self._write(element.tail)

    def _write(self, text: str | None) -> None:
        if text:
            self._pieces.append(text.replace("\n", _BREAK) if self._verbatim is not None else text)


# A line of a menu, and one as short as a label, take from a run of text what they could say.
LABEL_BYTES = 40


def find_densest_run(weights: Iterable[int]) -> tuple[int, int]:
    """Where the run with the greatest sum begins and ends."""
    best = total = start = 0
    found = (0, 0)
    for place, weight in enumerate(weights):
        if total <= 0:
            total, start = 0, place
        total += weight
        if total > best:
            best, found = total, (start, place + 1)
    return found


def weigh_line(text: str, *, linked: bool) -> int:
    """What a line adds to a run of text, in bytes: an ideograph says as much as three letters."""
    size = len(text.encode("utf-8", "ignore"))
    if linked:
        return -LABEL_BYTES - size // 2
    return (
        size if size >= LABEL_BYTES or text.endswith((".", "!", "?", "。")) else size - LABEL_BYTES
    )


def _find_densest(lines: list[str]) -> list[str]:
    """The run of lines with the most text outside links."""
    plain = [_LINKED.sub(r"\1", line).replace(_LINK_END, "") for line in lines]
    linked = [2 * sum(map(len, _LINKED.findall(line))) > len(line) for line in lines]
    weights = (weigh_line(p, linked=link) for p, link in zip(plain, linked, strict=True))
    start, end = find_densest_run(weights)
    return [plain[place] for place in range(start, end) if not linked[place]]


# With more elements trafilatura takes seconds, and is not made for such pages.
CONTENT_ELEMENTS = 50_000
# A page with a shorter main content may not be an article (but a list, a form, a table).
LITTLE_TEXT = 200
# So may one whose main content has only this share of the words outside links, unless it is long.
ENOUGH_TEXT = 3_000
LITTLE_SHARE = 0.2
# The share of the densest run of lines, which is taken where nothing else stands out.
DENSE_SHARE = 0.5
# Prose that the main content may lack before it is looked for in another way.
PROSE_CHARS = 80
PROSE_TIMES = 1.5
_PARAGRAPHS = f"count(.//p[string-length() >= {PROSE_CHARS}])"
# A list of this many links, with hardly any other words, is a menu.
MENU_LINKS = 5
MENU_SHARE = 0.9

_COMMENTS = ".//*[contains(@id, 'comment') or contains(@class, 'comment')]"
_EMPTY = ".//*[not(*) and not(self::br or self::hr or self::td or self::th or normalize-space())]"
_TABLE_RULE = re.compile(r"^\|(---\|)+\n", re.MULTILINE)
_TABLE_ROW = re.compile(r"^\| (.*?) *\| *$", re.MULTILINE)


def main_content(body: Any) -> str:
    """The main content of the page; empty when no part of it stands out."""
    content = copy(body)
    for hidden in find_hidden(content):
        hidden.drop_tree()
    _prune(content)
    paragraphs = find_all(_PARAGRAPHS)(content)
    text = _extract(content)
    if PROSE_TIMES * sum(len(line) >= PROSE_CHARS for line in text.split("\n")) < paragraphs:
        text = _read_alike(body, text)
    if len(text) >= ENOUGH_TEXT:
        return text
    # Whether the page marks its main part, or declares to be an article.
    article = next(body.iter("article", "main"), None) is not None or "article" in map(
        str.lower, _meta_values(body.getroottree(), "og:type")
    )
    words = _length_without_links(content) if article else len(visible_lines(body))
    if len(text) >= max(LITTLE_TEXT, LITTLE_SHARE * words):
        return text
    dense = _Lines(body, framed=True, dense=True).read()
    plain, shown = _length_without_links(content), len(visible_lines(body))
    return (
        dense if len(dense) >= max(LITTLE_TEXT, DENSE_SHARE * plain, LITTLE_SHARE * shown) else ""
    )


def _read_alike(body: Any, first: str) -> str:
    """The text of all containers marked up like that of the first text, if they add much to it."""
    paragraphs = [p for p in body.iter("p") if len(p.text or "") >= PROSE_CHARS]
    parents = Counter(p.getparent() for p in paragraphs if " ".join(p.text.split()) in first)
    if not parents:
        return first
    main = max(parents, key=lambda parent: parents[parent])
    marked = (main.get("class"), len(list(main.iterancestors())))
    alike = dict.fromkeys(p.getparent() for p in paragraphs)
    pieces = [
        _Lines(container, framed=True).read()
        for container in alike
        if container.tag == main.tag
        and (container.get("class"), len(list(container.iterancestors()))) == marked
    ]
    text = "\n".join(pieces)
    return text if len(pieces) > 1 and len(text) > PROSE_TIMES * len(first) else first


def _prune(content: Any) -> None:
    """Remove what trafilatura never keeps: it is quicker on a small tree."""
    from lxml import etree
    from trafilatura.settings import MANUALLY_CLEANED, MANUALLY_STRIPPED

    # trafilatura may keep parts of these.
    dropped = {*MANUALLY_CLEANED, "header"} - {"form", "figure", "math"}
    etree.strip_elements(content, *dropped, with_tail=False)
    etree.strip_tags(content, *MANUALLY_STRIPPED)
    # trafilatura drops an empty element together with the text after it, so empty elements are
    # removed first; twice, for elements that hold nothing but empty ones.
    for _ in range(2):
        for element in find_all(_EMPTY)(content):
            element.drop_tree()
    for listing in filter(_is_menu, list(content.iter("ul", "ol"))):
        listing.drop_tree()
    unwrap_layout_tables(content)


def _is_menu(listing: Any) -> bool:
    links = listing.findall(".//a")
    if len(links) < MENU_LINKS or next(listing.iterancestors("main"), None) is not None:
        return False
    return sum(map(_count_words, links)) >= MENU_SHARE * _count_words(listing)


def _count_words(element: Any) -> int:
    return len("".join(element.itertext()).split())


def _extract(content: Any) -> str:
    from trafilatura import bare_extraction

    try:
        document: Any = bare_extraction(content, options=_options())
    except MemoryError:
        raise
    except Exception:
        return ""  # it fails on unusual trees in many ways; the visible text is used instead
    text = (document.text if document else None) or ""
    if "|" not in text:
        return text
    # Rows as in other formats: ` | ` between cells, and nothing around them.
    return _TABLE_ROW.sub(r"\1", _TABLE_RULE.sub("", text)).replace("\\|", "|")


@cache
def _options() -> Any:
    from trafilatura.settings import Extractor

    # Precision without comments measured best on annotated articles, and is the fastest.
    return Extractor(output_format="python", fast=True, comments=False, precision=True)


def _meta_values(tree: Any, name: str) -> Iterator[str]:
    metas = tree.iter("meta")
    return (meta.get("content", "") for meta in metas if meta.get("property") == name)


def _length_without_links(content: Any) -> int:
    """The length of the page's text without its links and comments.

    The part marked as main counts with its links: it may be a list of them.
    """
    from lxml import etree

    for comments in content.xpath(_COMMENTS):
        comments.drop_tree()
    marked = max(map(_text_length, content.iter("main")), default=0)
    etree.strip_elements(content, "a", with_tail=False)
    return max(marked, _text_length(content))


def _text_length(element: Any) -> int:
    return len(" ".join("".join(element.itertext()).split()))


@dataclass(frozen=True, slots=True)
class PageText:
    """A decoded page and its parsed tree."""

    source: str
    tree: Any


def read_page(raw: RawDocument) -> PageText:
    """Decode and parse a page; any text can be parsed as HTML."""
    source = decode_text(raw.content, raw.media_type, markup=True)
    return PageText(source, parse_tree(source))


def extract_page(page: PageText) -> ExtractedText:
    """Main content and title of a page; its tree is not changed."""
    body = body_of(page.tree)
    text = "" if has_more_elements(page.source, CONTENT_ELEMENTS) else main_content(body)
    return ExtractedText(text=text or visible_lines(body), title=page_title(page), media_type=HTML)


def page_title(page: PageText) -> str | None:
    """`og:title` goes first: it does not contain the site's name."""
    title, heading = (
        ("".join(found.itertext()) for found in page.tree.iter(tag)) for tag in ("title", "h1")
    )
    shared = _meta_values(page.tree, "og:title")
    found = (next(titles, "").strip() for titles in (shared, title, heading))
    return next(filter(None, found), None)


def page_headings(page: PageText) -> list[tuple[int, str]]:
    """Level and words of each heading of the page, also of those outside its main content."""
    found = page.tree.iter("h1", "h2", "h3", "h4", "h5", "h6")
    return [(int(heading.tag[1]), "".join(heading.itertext())) for heading in found]


def visible_text(source: str) -> str:
    """The visible text without the site's navigation, one block per line."""
    return visible_lines(body_of(parse_tree(source)))


_TAGS = (
    r"</(p|div|li|ul|ol|a|b|i|strong|em|span|h[1-6]|td|tr|table|blockquote|section)\s*>"
    r"|<(br|p|hr)\s*/?>"
)
_VALUE_TAG = re.compile(_TAGS, re.IGNORECASE)
_ESCAPED_TAG = re.compile(_TAGS.replace("<", "&lt;").replace(">", "&gt;"), re.IGNORECASE)


def readable_value(value: str) -> str:
    """The visible text of a value that is HTML; other values unchanged."""
    if "<" not in value and "&lt;" not in value:
        return value
    if _ESCAPED_TAG.search(value) and not _VALUE_TAG.search(value):
        value = html.unescape(value)
    return visible_text(value) if _VALUE_TAG.search(value) else value
