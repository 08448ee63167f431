"""Text of a Word document: page headers, body, page footers, then notes."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.documents import ExtractedText, RawDocument
from penstock.text.kinds import DOCX
from penstock.text.word.blocks import attribute, block_texts, has_page_number, paragraph_text
from penstock.text.word.package import Package, Relation

MAIN_PART = "word/document.xml"

_NO_NOTES = ("separator", "continuationSeparator", "continuationNotice")
_WORD = re.compile(r"[^\W_]+")
_PAGE_WORD = re.compile(
    "pages?|pg|p|of|seite|von|p[áa]gina|p[áa]g|de|di|sur|sida|side|av|af|strona|str|z|страница|стр|из"
    "|第|頁|页|共|ページ"
)


def extract_docx(raw: RawDocument) -> ExtractedText:
    """One line per paragraph; a table's rows are lines with ` | ` between cells."""
    package = Package(raw)
    main = _main_part(package)
    root = package.read(main)
    parts = {relation.id: relation for relation in package.relations(main)}
    body = next(root.iterchildren("{*}body"), None)
    if body is None:
        raise package.broken(f"{main} has no body")
    texts = [
        *_frame_texts(package, body, "header", parts),
        *block_texts(body),
        *_frame_texts(package, body, "footer", parts),
        *_note_texts(package, parts.values()),
    ]
    title, author = _core_properties(package)
    return ExtractedText(
        text="\n".join(texts),
        title=title or _styled_title(body),
        media_type=DOCX,
        metadata={"author": author},
    )


def _main_part(package: Package) -> str:
    found = [part.target for part in package.relations("") if part.kind == "officeDocument"]
    names = package.names()
    return next((target for target in found if target in names), MAIN_PART)


def _frame_texts(
    package: Package, body: Any, frame: str, parts: Mapping[str, Relation]
) -> Iterable[str]:
    """The lines of all page headers, or all footers, each once, without mere page numbers."""
    references = [attribute(element, "id") for element in body.iter(f"{{*}}{frame}Reference")]
    targets = dict.fromkeys(parts[id_].target for id_ in references if id_ in parts)
    roots = (root for root in map(package.read_if_whole, targets) if root is not None)
    return dict.fromkeys(text for root in roots for text in _telling_texts(root))


def _telling_texts(root: Any) -> Iterator[str]:
    numbered = has_page_number(root)
    for text in block_texts(root):
        words = _WORD.findall(re.sub(r"\d+", " ", text) if numbered else text)
        if not all(_PAGE_WORD.fullmatch(word.lower()) for word in words):
            yield text


def _note_texts(package: Package, parts: Iterable[Relation]) -> Iterator[str]:
    for kind in ("footnotes", "endnotes"):
        for target in (part.target for part in parts if part.kind == kind):
            root = package.read_if_whole(target)
            for note in () if root is None else root:
                if attribute(note, "type") not in _NO_NOTES:
                    yield from filter(str.strip, block_texts(note))


def _core_properties(package: Package) -> tuple[str | None, str | None]:
    """Title and author."""
    found = (part.target for part in package.relations("") if part.kind == "core-properties")
    root = package.read_if_whole(next(found, "docprops/core.xml"))
    if root is None:
        return None, None
    return root.findtext("{*}title"), root.findtext("{*}creator")


def _styled_title(body: Any) -> str | None:
    """The first paragraph in the style Title."""
    for style in body.iter("{*}pStyle"):
        if attribute(style, "val") == "Title":
            return paragraph_text(style.getparent().getparent())
    return None
