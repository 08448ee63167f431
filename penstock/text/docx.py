"""Text of a Word document: page headers, body, page footers, then notes."""

import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email import message_from_bytes
from typing import Any

from penstock.documents import ExtractedText, RawDocument
from penstock.errors import DocumentFault, ErrorClass
from penstock.text.charsets import clean_text, decode_text
from penstock.text.html import visible_text
from penstock.text.media_types import (
    DOCX,
    HTML,
    PLAIN,
    ArchiveTooLarge,
    detect_media_type,
    entry_name,
    open_archive,
    read_entry,
)
from penstock.text.plain import describe_syntax_error

# Far more XML than the longest book needs, and what fits into a child's memory as a tree.
UNPACKED_BYTES = 64 * 1024**2

_READ = (".xml", ".rels", ".htm", ".html", ".xhtml", ".mht", ".mhtml", ".txt")
_ADVICE = "open it in Word and save it again, or send it as PDF"
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError)


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation to another part."""

    id: str
    kind: str
    """The last segment of the relation's type."""
    target: str
    """The name of the part."""


class Package:
    """An opened document. Only parts that are read are unpacked: never its pictures.

    Not opened with python-docx, which refuses templates, documents with macros, and any document
    with one dangling relation, and unpacks everything without limits.
    """

    def __init__(self, raw: RawDocument) -> None:
        self._name = raw.name
        try:
            self._archive = open_archive(raw.content)
        except ArchiveTooLarge as error:
            raise self._too_large(str(error)) from error
        except zipfile.BadZipFile as error:
            raise self.broken(error) from error
        self._entries = {entry_name(entry): entry for entry in self._archive.infolist()}
        parts = (entry for name, entry in self._entries.items() if name.endswith(_READ))
        unpacked = sum(entry.file_size for entry in parts)
        if unpacked > UNPACKED_BYTES:
            limit = f"more than the {UNPACKED_BYTES} allowed"
            raise self._too_large(f"its text unpacks to {unpacked} bytes, {limit}")

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def unpack(self, name: str) -> bytes:
        """The bytes of a part; DocumentFault when they cannot be read."""
        try:
            return read_entry(self._archive, self._entries[name], UNPACKED_BYTES)
        except KeyError:
            raise self.broken(f"it has no part {name}") from None
        except ArchiveTooLarge as error:
            raise self._too_large(str(error)) from error
        except RuntimeError as error:  # zipfile raises it for a missing password
            raise DocumentFault(
                ErrorClass.FORBIDDEN,
                f"{self._name}: the document is encrypted; remove its password and send it again",
            ) from error
        except _UNREADABLE as error:
            raise self.broken(f"{name}: {error}") from error

    def read(self, name: str) -> Any:
        """The root element of a part; DocumentFault when it is missing or broken."""
        import docx.oxml.parser
        from lxml import etree  # type: ignore[import-untyped]

        try:
            root = docx.oxml.parser.parse_xml(self.unpack(name))
        except etree.XMLSyntaxError as error:
            raise self.broken(f"{name}: {describe_syntax_error(error)}") from error
        if root.getroottree().docinfo.doctype:
            raise self.broken(f"{name} has a DTD, which no Word document may have")
        return root

    def read_optional(self, name: str) -> Any | None:
        """The root element of an optional part; None when it cannot be read."""
        try:
            return self.read(name)
        except DocumentFault:
            return None

    def relations(self, source: str) -> Iterator[Relation]:
        """The relations of a part; the package itself is the part with an empty name."""
        folder, base = posixpath.split(source)
        root = self.read_optional(posixpath.join(folder, "_rels", f"{base}.rels"))
        for element in () if root is None else root.iterchildren("{*}Relationship"):
            kind = element.get("Type", "").rpartition("/")[2]
            target = posixpath.normpath(posixpath.join("/", folder, element.get("Target", "")))
            yield Relation(element.get("Id", ""), kind, target.lstrip("/").lower())

    def broken(self, reason: object) -> DocumentFault:
        return DocumentFault(
            ErrorClass.CORRUPTION,
            f"{self._name}: the Word document is broken ({reason}); {_ADVICE}",
        )

    def _too_large(self, reason: str) -> DocumentFault:
        return DocumentFault(
            ErrorClass.TOO_LARGE, f"{self._name}: {reason}; split it into smaller documents"
        )


# Deleted or moved text, properties, and second forms of the same text.
_SKIPPED = frozenset(
    (
        *("del", "moveFrom", "Fallback", "rPr", "pPr", "tblPr", "trPr", "tcPr", "sdtPr", "sectPr"),
        *("tblGrid", "instrText", "delText", "rt"),
    )
)
# A control that still shows "Click here to enter text", and a row that was deleted.
_EMPTY_MARKS = {"sdt": "{*}sdtPr/{*}showingPlcHdr", "tr": "{*}trPr/{*}del"}
_PIECES = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_PAGE_FIELD = re.compile(r"\b(PAGE|NUMPAGES|SECTIONPAGES)\b")


def local_name(element: Any) -> str:
    """The name without its namespace, which differs in strict documents; empty for comments."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def block_texts(container: Any) -> list[str]:
    """Paragraphs and table rows of a body, a header, a note or a cell, in order."""
    texts: list[str] = []
    for element in _read_children(container):
        name = local_name(element)
        if name == "p":
            texts.append(paragraph_text(element))
        elif name == "tr":
            texts += _row_texts(element)
        else:  # a table, a content control, a tracked insertion
            texts += block_texts(element)
    return texts


def paragraph_text(paragraph: Any) -> str:
    pieces: list[str] = []
    _gather(paragraph, pieces)
    return "".join(pieces)


def attribute(element: Any, name: str) -> str:
    """An attribute's value, whichever namespace it is in."""
    found = (v for key, v in element.attrib.items() if key.rpartition("}")[2] == name)
    return next(found, "")


def _gather(element: Any, pieces: list[str]) -> None:
    for child in _read_children(element):
        name = local_name(child)
        if name == "t":
            pieces.append(child.text or "")
        elif name in _PIECES:
            pieces.append(_PIECES[name])
        elif name == "txbxContent":  # a text box, anchored in the middle of this paragraph
            pieces += ("\n", "\n".join(block_texts(child)), "\n")
        else:
            _gather(child, pieces)


def _read_children(element: Any) -> Iterator[Any]:
    mark = _EMPTY_MARKS.get(local_name(element))
    if mark is None or element.find(mark) is None:
        # One at a time: a child takes far more memory once Python has an object for it.
        yield from (child for child in element if local_name(child) not in _SKIPPED)


def _row_texts(row: Any) -> list[str]:
    """One line; or one cell after the other in a table that only lays out a page."""
    cells = list(_cells(row))
    texts = [[] if _continues(cell, "vMerge") else block_texts(cell) for cell in cells]
    # A cell with several paragraphs, a table or a text box holds a part of the page.
    if any(sum(map(bool, map(str.strip, blocks))) > 1 for blocks in texts) or any(
        next(cell.iter("{*}tbl", "{*}txbxContent"), None) is not None for cell in cells
    ):
        return [text for blocks in texts for text in blocks]
    return [" | ".join(" ".join(" ".join(blocks).split()) for blocks in texts)]


def _cells(container: Any) -> Iterator[Any]:
    for element in _read_children(container):
        if local_name(element) != "tc":
            yield from _cells(element)
        elif not _continues(element, "hMerge"):
            yield element


def _continues(cell: Any, merge: str) -> bool:
    """Whether the cell continues the merged one before or above it."""
    mark = cell.find(f"{{*}}tcPr/{{*}}{merge}")
    return mark is not None and attribute(mark, "val") != "restart"


_OFF = ("0", "false", "off")
_MAX_STYLE_BASES = 10


def drop_hidden(root: Any, hidden_styles: frozenset[str]) -> None:
    """Remove the runs of a part that are hidden, by themselves or by their style."""
    marks = filter(_is_on, root.iter("{*}vanish"))
    owners = dict.fromkeys(mark.getparent().getparent() for mark in marks)
    for run in owners:
        if local_name(run) == "r":
            run.getparent().remove(run)
    if hidden_styles:
        for run in dict.fromkeys(_styled_runs(root, hidden_styles)):
            run.getparent().remove(run)


def find_hidden_styles(styles: Any | None) -> frozenset[str]:
    """The ids of the styles that hide their text, or are based on one that does."""
    found = () if styles is None else styles.iter("{*}style")
    known = {attribute(style, "styleId"): style for style in found}
    return frozenset(style_id for style_id in known if _hides(style_id, known))


def _hides(name: str, known: dict[str, Any]) -> bool:
    for _ in range(_MAX_STYLE_BASES):
        style = known.get(name)
        if style is None:
            return False
        mark = style.find("{*}rPr/{*}vanish")
        if mark is not None:
            return _is_on(mark)
        base = style.find("{*}basedOn")
        name = "" if base is None else attribute(base, "val")
    return False


def _styled_runs(root: Any, styles: frozenset[str]) -> Iterator[Any]:
    for style in root.iter("{*}rStyle", "{*}pStyle"):
        if attribute(style, "val") in styles:
            owner = style.getparent().getparent()
            runs = owner.iter("{*}r") if local_name(owner) in ("r", "p") else ()
            for run in runs:
                mark = run.find("{*}rPr/{*}vanish")
                # A run may state that it is not hidden, whatever its style.
                if mark is None or _is_on(mark):
                    yield run


def _is_on(mark: Any) -> bool:
    return attribute(mark, "val").lower() not in _OFF


# Web pages with their pictures, as browsers save them: a MIME message with many parts.
_WEB_ARCHIVES = (".mht", ".mhtml")


def merge_chunks(package: Package, body: Any, parts: Mapping[str, Relation]) -> list[str]:
    """Replace each chunk by a paragraph; returns the names of those that cannot be read."""
    # Each part once, however often it is referred to: a small file could expand without limit.
    chunks = {attribute(chunk, "id"): chunk for chunk in body.iter("{*}altChunk")}
    targets = {parts[id_].target: chunk for id_, chunk in chunks.items() if id_ in parts}
    texts = {target: _read_chunk(package, target) for target in targets}
    for target, text in texts.items():
        if text is not None:
            _replace(targets[target], text)
    return [target for target, text in texts.items() if text is None]


def _read_chunk(package: Package, target: str) -> str | None:
    try:
        raw = RawDocument(target, package.unpack(target))
    except DocumentFault:
        return None
    documents = _archived(raw) if target.endswith(_WEB_ARCHIVES) else (raw,)
    return next((text for text in map(_read_text, documents) if text is not None), None)


def _archived(raw: RawDocument) -> Iterable[RawDocument]:
    for part in message_from_bytes(raw.content).walk():
        content = part.get_payload(decode=True)
        if part.get_content_maintype() == "text" and isinstance(content, bytes):
            yield RawDocument(raw.name, content, part.get("Content-Type"))


def _read_text(raw: RawDocument) -> str | None:
    kind = detect_media_type(raw)
    if kind not in (HTML, PLAIN):
        return None
    text = decode_text(raw.content, raw.media_type, markup=kind == HTML)
    return clean_text(visible_text(text) if kind == HTML else text)


def _replace(chunk: Any, text: str) -> None:
    paragraph = element = chunk.makeelement(chunk.tag.replace("altChunk", "p"))
    for name in ("r", "t"):
        element.append(element.makeelement(chunk.tag.replace("altChunk", name)))
        element = element[0]
    element.text = text
    chunk.getparent().replace(chunk, paragraph)


MAIN_PART = "word/document.xml"

_SEPARATORS = ("separator", "continuationSeparator", "continuationNotice")
_WORD = re.compile(r"[^\W_]+")
_PAGE_WORD = re.compile(
    "pages?|pg|p|of|seite|von|p[áa]gina|p[áa]g|de|di|sur|sida|side|av|af|strona|str|z|страница|стр|из"
    "|第|頁|页|共|ページ"
)


class _Parts:
    """The parts that the main part refers to, read without hidden text."""

    def __init__(self, package: Package, main: str) -> None:
        self._package = package
        self.relations = {relation.id: relation for relation in package.relations(main)}
        styles = package.read_optional(next(self.targets("styles"), "word/styles.xml"))
        self.hidden_styles = find_hidden_styles(styles)

    def targets(self, kind: str) -> Iterator[str]:
        return (part.target for part in self.relations.values() if part.kind == kind)

    def read(self, target: str) -> Any | None:
        root = self._package.read_optional(target)
        if root is not None:
            drop_hidden(root, self.hidden_styles)
        return root


_HEADING_STYLE = re.compile("heading ?([1-9])", re.IGNORECASE)


def extract_docx(raw: RawDocument) -> ExtractedText:
    """One line per paragraph; a table's rows are lines with ` | ` between cells."""
    package = Package(raw)
    found = (part.target for part in package.relations("") if part.kind == "officeDocument")
    main = next((target for target in found if target in package), MAIN_PART)
    body = next(package.read(main).iterchildren("{*}body"), None)
    if body is None:
        raise package.broken(f"{main} has no body")
    parts = _Parts(package, main)
    drop_hidden(body, parts.hidden_styles)
    unread = merge_chunks(package, body, parts.relations)
    texts = [
        *_frame_texts(body, "header", parts),
        *block_texts(body),
        *_frame_texts(body, "footer", parts),
        *_note_texts(parts),
    ]
    if unread and not any(map(str.strip, texts)):
        reason = f"all its text is in a part that only Word can merge ({unread[0]})"
        raise DocumentFault(ErrorClass.UNSUPPORTED, f"{raw.name}: {reason}; {_ADVICE}")
    found = (part.target for part in package.relations("") if part.kind == "core-properties")
    properties = package.read_optional(next(found, "docprops/core.xml"))
    title, author = (
        None if properties is None else properties.findtext(f"{{*}}{name}")
        for name in ("title", "creator")
    )
    styled = (style for style in body.iter("{*}pStyle") if attribute(style, "val") == "Title")
    titles = (paragraph_text(style.getparent().getparent()) for style in styled)
    return ExtractedText(
        text="\n".join(texts),
        title=title or next(titles, None),
        media_type=DOCX,
        metadata={"author": author, "unread_parts": len(unread) or None},
        headings=(*_headings(body),),
    )


def _headings(body: Any) -> Iterator[tuple[int, str]]:
    """Level and words of the paragraphs in a style of headings."""
    for style in body.iter("{*}pStyle"):
        if found := _HEADING_STYLE.fullmatch(attribute(style, "val")):
            yield int(found[1]), paragraph_text(style.getparent().getparent())


def _frame_texts(body: Any, frame: str, parts: _Parts) -> Iterable[str]:
    """The lines of all page headers, or all footers, each once, without mere page numbers."""
    references = [attribute(element, "id") for element in body.iter(f"{{*}}{frame}Reference")]
    known = parts.relations
    targets = dict.fromkeys(known[id_].target for id_ in references if id_ in known)
    roots = (root for root in map(parts.read, targets) if root is not None)
    return dict.fromkeys(text for root in roots for text in _frame_lines(root))


def _frame_lines(root: Any) -> Iterator[str]:
    fields = [element.text or "" for element in root.iter("{*}instrText")]
    fields += [attribute(element, "instr") for element in root.iter("{*}fldSimple")]
    shows_page_number = _PAGE_FIELD.search(" ".join(fields))
    for text in block_texts(root):
        words = _WORD.findall(re.sub(r"\d+", " ", text) if shows_page_number else text)
        if not all(_PAGE_WORD.fullmatch(word.lower()) for word in words):
            yield text


def _note_texts(parts: _Parts) -> Iterator[str]:
    for root in map(parts.read, (*parts.targets("footnotes"), *parts.targets("endnotes"))):
        for note in () if root is None else root:
            if attribute(note, "type") not in _SEPARATORS:
                yield from filter(str.strip, block_texts(note))
