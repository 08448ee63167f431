"""Text of a Word document: page headers first, then paragraphs and tables in document order."""

import zipfile
from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any

from penstock.documents import ExtractedText, RawDocument
from penstock.errors import DocumentFault, ErrorClass
from penstock.text.kinds import DOCX

if TYPE_CHECKING:
    from docx.document import Document

UNPACKED_BYTES = 512 * 1024**2

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_BREAKS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
_WRAPPERS = frozenset({f"{_W}sdt", f"{_W}sdtContent", f"{_W}ins", f"{_W}customXml"})


def extract_docx(raw: RawDocument) -> ExtractedText:
    """Headers, paragraphs and tables; a table's rows are lines with ` | ` between cells."""
    document = _open_docx(raw)
    _drop_fallbacks(document.element.body)
    blocks = [*_header_blocks(document), *_blocks(document.element.body)]
    properties = document.core_properties
    return ExtractedText(
        text="\n".join(blocks),
        title=properties.title,
        media_type=DOCX,
        metadata={"author": properties.author},
    )


def _open_docx(raw: RawDocument) -> "Document":
    import docx

    try:
        with zipfile.ZipFile(BytesIO(raw.content)) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked <= UNPACKED_BYTES:
            return docx.Document(BytesIO(raw.content))
    except MemoryError:
        raise
    except Exception as error:
        # python-docx lets zip, XML, key and value errors through, all for the same reason.
        raise DocumentFault(
            ErrorClass.CORRUPTION, f"{raw.name}: the Word document is broken ({error})"
        ) from error
    raise DocumentFault(
        ErrorClass.TOO_LARGE,
        f"{raw.name}: unpacks to {unpacked} bytes, more than the {UNPACKED_BYTES} allowed",
    )


def _header_blocks(document: "Document") -> list[str]:
    blocks: dict[str, None] = {}
    for section in document.sections:
        for header in (section.first_page_header, section.header):
            if not header.is_linked_to_previous:
                blocks.update(dict.fromkeys(filter(str.strip, _blocks(header._element))))
    return list(blocks)


def _blocks(container: Any) -> Iterator[str]:
    """Paragraphs and table rows of a body, a header or a cell, in order."""
    for element in _children(container, "p", "tbl"):
        if element.tag == f"{_W}p":
            yield _paragraph_text(element)
        else:
            yield from map(_row_text, _children(element, "tr"))


def _children(parent: Any, *names: str) -> Iterator[Any]:
    """Children of these names, also those wrapped in a content control or a tracked insertion."""
    for child in parent.iterchildren():
        if child.tag in _WRAPPERS:
            yield from _children(child, *names)
        elif child.tag in {f"{_W}{name}" for name in names}:
            yield child


def _row_text(row: Any) -> str:
    return " | ".join(" ".join(" ".join(_blocks(cell)).split()) for cell in _children(row, "tc"))


def _paragraph_text(paragraph: Any) -> str:
    pieces: list[str] = []
    for element in paragraph.iter(f"{_W}r", f"{_W}p"):
        if element.tag == f"{_W}r":
            pieces += (_run_piece(piece) for piece in element)
        elif element is not paragraph:
            pieces.append("\n")  # a paragraph of a text box, anchored inside this one
    return "".join(pieces)


def _run_piece(element: Any) -> str:
    return element.text or "" if element.tag == f"{_W}t" else _BREAKS.get(element.tag, "")


def _drop_fallbacks(body: Any) -> None:
    """Word stores a text box twice; the second form is for older programs."""
    for element in list(body.iter(_FALLBACK)):
        element.getparent().remove(element)
