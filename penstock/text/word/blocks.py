"""Paragraphs and table rows in a tree of WordprocessingML, whichever its namespaces."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

# Deleted or moved away, not meant for readers, or a second form of what was told already.
_UNREAD = frozenset(
    (
        "del",
        "moveFrom",
        "Fallback",
        "rPr",
        "pPr",
        "tblPr",
        "trPr",
        "tcPr",
        "sdtPr",
        "sectPr",
        "tblGrid",
        "instrText",
        "delText",
        "rt",
    )
)
_PIECES = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_PAGE_FIELD = re.compile(r"\b(PAGE|NUMPAGES|SECTIONPAGES)\b")


def local_name(element: Any) -> str:
    """The name without its namespace; empty for comments and the like.

    Strict documents differ from the common ones in their namespaces only.
    """
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


def has_page_number(container: Any) -> bool:
    """Whether a field in it shows the number of a page."""
    instructions = [element.text or "" for element in container.iter("{*}instrText")]
    instructions += [attribute(element, "instr") for element in container.iter("{*}fldSimple")]
    return bool(_PAGE_FIELD.search(" ".join(instructions)))


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
    # One at a time: a child costs far more memory once Python has seen it.
    if not _is_void(element):
        yield from (child for child in element if local_name(child) not in _UNREAD)


def _is_void(element: Any) -> bool:
    """A control that still asks "Click here to enter text", or a row that was deleted."""
    name = local_name(element)
    if name == "sdt":
        return element.find("{*}sdtPr/{*}showingPlcHdr") is not None
    return name == "tr" and element.find("{*}trPr/{*}del") is not None


def _row_texts(row: Any) -> list[str]:
    """One line, or the cells one after the other where they only lay out a page."""
    cells = list(_cells(row))
    texts = [[] if _continues(cell, "vMerge") else block_texts(cell) for cell in cells]
    if any(map(_is_part, cells, texts)):
        return [text for blocks in texts for text in blocks]
    return [" | ".join(" ".join(" ".join(blocks).split()) for blocks in texts)]


def _cells(container: Any) -> Iterator[Any]:
    for element in _read_children(container):
        if local_name(element) != "tc":
            yield from _cells(element)
        elif not _continues(element, "hMerge"):
            yield element


def _is_part(cell: Any, texts: Sequence[str]) -> bool:
    """Whether the cell holds what a page may hold: paragraphs, a table, a text box."""
    if sum(map(bool, map(str.strip, texts))) > 1:
        return True
    return next(cell.iter("{*}tbl", "{*}txbxContent"), None) is not None


def _continues(cell: Any, merge: str) -> bool:
    """Whether the cell only continues the merged one before or above it."""
    mark = cell.find(f"{{*}}tcPr/{{*}}{merge}")
    return mark is not None and attribute(mark, "val") != "restart"
