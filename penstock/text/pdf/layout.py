"""The closer look at pages that call for it, by pdfplumber, within bounds."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from penstock.text.pdf.pages import FastPage
from penstock.text.pdf.reading import read_closely

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument  # type: ignore[import-untyped]

LAYOUT_PAGES = 400
LAYOUT_WEIGHT = 600_000
"""Characters and drawn segments of a document; pdfplumber reads about ten thousand a second."""
LAYOUT_SECONDS = 90
"""For a machine so slow that the counts alone would not keep a document within its time."""

_PART_PAGES = 8

_Numbered = tuple[int, FastPage]


@dataclass(frozen=True, slots=True)
class Layout:
    """Page texts better than the fast ones, by page index."""

    texts: Mapping[int, str]
    tried: int
    skipped: int
    """Pages that called for it but came after the bounds were reached."""


def lay_out(document: "PdfDocument", pages: Sequence[FastPage | None]) -> Layout:
    """Look closer at the pages that want it, in order, as far as the bounds allow."""
    wanted = [(n, page) for n, page in enumerate(pages) if page is not None and page.wants_layout]
    texts: dict[int, str] = {}
    tried = 0
    deadline = time.monotonic() + LAYOUT_SECONDS
    for batch in _batches(list(_within_bounds(wanted))):
        if time.monotonic() > deadline:
            break
        texts |= _lay_out_batch(document, batch)
        tried += len(batch)
    return Layout(texts, tried, len(wanted) - tried)


def _within_bounds(wanted: Iterable[_Numbered]) -> Iterator[_Numbered]:
    weight = 0
    for count, (number, page) in enumerate(wanted):
        weight += page.weight
        if count >= LAYOUT_PAGES or weight > LAYOUT_WEIGHT:
            return
        yield number, page


def _batches(pages: Sequence[_Numbered]) -> Iterator[Sequence[_Numbered]]:
    for start in range(0, len(pages), _PART_PAGES):
        yield pages[start : start + _PART_PAGES]


def _lay_out_batch(document: "PdfDocument", batch: Sequence[_Numbered]) -> dict[int, str]:
    """Whatever goes wrong here costs the closer look, never the document: it has its fast text."""
    texts: dict[int, str] = {}
    with suppress(Exception):
        import pdfplumber

        # It warns of every oddity, page after page; none of them is news to the reader.
        logging.getLogger("pdfminer").setLevel(logging.ERROR)
        part = _cut_part(document, [number for number, _ in batch])
        with pdfplumber.open(part) as pdf:
            for page, (number, fast) in zip(pdf.pages, batch, strict=True):
                with suppress(Exception), closing(page):
                    text = read_closely(page, fast)
                    if text is not None:
                        texts[number] = text
    return texts


def _cut_part(document: "PdfDocument", numbers: list[int]) -> BytesIO:
    """These pages as a small PDF of their own, mended and decrypted by pdfium.

    pdfplumber walks all pages of a file before it gives one, and keeps what it has parsed.
    """
    import pypdfium2

    stream = BytesIO()
    with closing(pypdfium2.PdfDocument.new()) as part:
        part.import_pages(document, numbers)
        part.save(stream)
    stream.seek(0)
    return stream
