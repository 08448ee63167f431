"""A PDF's pages as pdfium reads them, each with the reasons why its text may not be enough."""

import re
from collections.abc import Iterator
from ctypes import c_ushort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.text.pdf.objects import PAGE_WEIGHT, weigh_drawing
from penstock.text.pdf.order import is_order_broken
from penstock.text.pdf.rulings import holds_grid

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument  # type: ignore[import-untyped]

_INSPECTED_CHARS = 1000
_SHORT_CHARS = 200

# What pdfium gives for a glyph whose character it does not know. U+FFFE is not among them: it
# marks a hyphen at a line's end.
_UNMAPPED = re.compile("[\x00-\x08\x0e-\x1f\ufffd\ue000-\uf8ff]")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")


@dataclass(frozen=True, slots=True)
class FastPage:
    """The text of one page, and what a closer look at its layout may mend."""

    text: str
    grid: bool = False
    """Ruled like a table."""
    disordered: bool = False
    poor: bool = False
    """Fewer characters than pieces of text, or characters nobody can read."""
    weight: int = 0
    """How much a closer look has to read: characters and drawn segments."""

    @property
    def wants_layout(self) -> bool:
        return self.grid or self.disordered or self.poor


def read_pages(document: "PdfDocument") -> Iterator[FastPage | None]:
    """One page after the other, each closed before the next; None where pdfium cannot load it.

    pypdfium2's raw calls, since its page objects cost more than the look for tables.
    """
    from pypdfium2 import raw

    for index in range(len(document)):
        page = raw.FPDF_LoadPage(document.raw, index)
        if not page:
            yield None
            continue
        try:
            read = _read_page(page)
        finally:
            raw.FPDF_ClosePage(page)
        yield read


def _read_page(page: Any) -> FastPage | None:
    from pypdfium2 import raw

    textpage = raw.FPDFText_LoadPage(page)
    if not textpage:
        return None
    try:
        return _inspect(page, textpage, _read_text(textpage))
    finally:
        raw.FPDFText_ClosePage(textpage)


def _read_text(textpage: Any) -> str:
    from pypdfium2 import raw

    first, last = 0, raw.FPDFText_CountChars(textpage) - 1
    # pdfium gives nothing, or too much, for a range that ends in a character it left out.
    while first <= last and raw.FPDFText_GetTextIndexFromCharIndex(textpage, first) < 0:
        first += 1
    while first < last and raw.FPDFText_GetTextIndexFromCharIndex(textpage, last) < 0:
        last -= 1
    count = last - first + 1
    if count <= 0:
        return ""
    # ctypes keeps a type for every length of array: a few lengths, then, and room to spare.
    buffer = (c_ushort * (2048 * (1 + count // 1024)))()
    written = raw.FPDFText_GetText(textpage, first, count, buffer)
    return bytes(buffer)[: 2 * max(0, written - 1)].decode("utf-16-le", errors="ignore")


def _inspect(page: Any, textpage: Any, text: str) -> FastPage:
    grid = holds_grid(page, textpage)
    disordered = is_order_broken(page, textpage, text)
    poor = _is_poor(page, text)
    if not (grid or disordered or poor) or _reads_right_to_left(text):
        return FastPage(text)
    weight = len(text) + weigh_drawing(page)
    if weight > PAGE_WEIGHT:
        return FastPage(text)
    return FastPage(text, grid, disordered, poor, weight)


def _is_poor(page: Any, text: str) -> bool:
    inspected = text[:_INSPECTED_CHARS]
    if len(_UNMAPPED.findall(inspected)) * 10 > len(inspected):
        return True
    return len(text) < _SHORT_CHARS and _count_texts(page) > len(text)


def _count_texts(page: Any) -> int:
    from pypdfium2 import raw

    count = min(raw.FPDFPage_CountObjects(page), PAGE_WEIGHT)
    objects = (raw.FPDFPage_GetObject(page, index) for index in range(count))
    return sum(raw.FPDFPageObj_GetType(item) == raw.FPDF_PAGEOBJ_TEXT for item in objects)


def _reads_right_to_left(text: str) -> bool:
    """pdfium puts such text into reading order, pdfplumber leaves it as it is painted."""
    inspected = text[:_INSPECTED_CHARS]
    return len(_RIGHT_TO_LEFT.findall(inspected)) * 10 > len(inspected)
