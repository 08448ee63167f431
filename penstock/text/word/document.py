"""Text of a Word document: page headers, body, page footers, then notes."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.documents import ExtractedText, RawDocument
from penstock.text.kinds import DOCX
from penstock.text.word.blocks import attribute, block_texts, has_page_number, paragraph_text
from penstock.text.word.chunks import merge_chunks
from penstock.text.word.hidden import drop_hidden, find_hiding_styles
from penstock.text.word.package import Package, Relation

MAIN_PART = "word/document.xml"

_NO_NOTES = ("separator", "continuationSeparator", "continuationNotice")
_WORD = re.compile(r"[^\W_]+")
_PAGE_WORD = re.compile(
    "pages?|pg|p|of|seite|von|p[áa]gina|p[áa]g|de|di|sur|sida|side|av|af|strona|str|z|страница|стр|из"
    "|第|頁|页|共|ページ"
)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the main part refers to, read without what is hidden in it."""

    package: Package
    relations: Mapping[str, Relation]
    hiding_styles: frozenset[str]

    @classmethod
    def of(cls, package: Package, main: str) -> "_Parts":
        relations = {relation.id: relation for relation in package.relations(main)}
        found = (part.target for part in relations.values() if part.kind == "styles")
        styles = package.read_if_whole(next(found, "word/styles.xml"))
        return cls(package, relations, find_hiding_styles(styles))

    def read(self, target: str) -> Any | None:
        root = self.package.read_if_whole(target)
        if root is not None:
            drop_hidden(root, self.hiding_styles)
        return root


def extract_docx(raw: RawDocument) -> ExtractedText:
    """One line per paragraph; a table's rows are lines with ` | ` between cells."""
    package = Package(raw)
    main = _main_part(package)
    body = next(package.read(main).iterchildren("{*}body"), None)
    if body is None:
        raise package.broken(f"{main} has no body")
    parts = _Parts.of(package, main)
    drop_hidden(body, parts.hiding_styles)
    unread = merge_chunks(package, body, parts.relations)
    texts = [
        *_frame_texts(body, "header", parts),
        *block_texts(body),
        *_frame_texts(body, "footer", parts),
        *_note_texts(parts),
    ]
    if unread and not any(map(str.strip, texts)):
        raise package.unread(unread[0])
    title, author = _core_properties(package)
    return ExtractedText(
        text="\n".join(texts),
        title=title or _styled_title(body),
        media_type=DOCX,
        metadata={"author": author, "unread_parts": len(unread) or None},
    )


def _main_part(package: Package) -> str:
    found = [part.target for part in package.relations("") if part.kind == "officeDocument"]
    names = package.names()
    return next((target for target in found if target in names), MAIN_PART)


def _frame_texts(body: Any, frame: str, parts: _Parts) -> Iterable[str]:
    """The lines of all page headers, or all footers, each once, without mere page numbers."""
    references = [attribute(element, "id") for element in body.iter(f"{{*}}{frame}Reference")]
    known = parts.relations
    targets = dict.fromkeys(known[id_].target for id_ in references if id_ in known)
    roots = (root for root in map(parts.read, targets) if root is not None)
    return dict.fromkeys(text for root in roots for text in _telling_texts(root))


def _telling_texts(root: Any) -> Iterator[str]:
    numbered = has_page_number(root)
    for text in block_texts(root):
        words = _WORD.findall(re.sub(r"\d+", " ", text) if numbered else text)
        if not all(_PAGE_WORD.fullmatch(word.lower()) for word in words):
            yield text


def _note_texts(parts: _Parts) -> Iterator[str]:
    for kind in ("footnotes", "endnotes"):
        for target in (part.target for part in parts.relations.values() if part.kind == kind):
            root = parts.read(target)
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
