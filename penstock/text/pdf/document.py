"""Text and metadata of a PDF: pdfium for every page, pdfplumber for those that need layout."""

import logging
import re
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta, timezone
from io import BytesIO
from itertools import accumulate, pairwise
from statistics import median
from typing import TYPE_CHECKING

from penstock.documents import PAGE_STARTS, ExtractedText, RawDocument
from penstock.errors import DocumentFault, ErrorClass
from penstock.text.charsets import clean_text
from penstock.text.pdf.pages import FastPage, read_pages
from penstock.text.pdf.tables import (
    HYPHEN_MARK,
    Owned,
    PdfLine,
    Table,
    find_lines,
    find_tables,
    join_lines,
    join_words,
    sort_lines,
)

if TYPE_CHECKING:
    from pdfplumber.page import Page
    from pypdfium2 import PdfDocument  # type: ignore[import-untyped]


VALUE_CHARS = 2000

# ISO 32000-1, 7.9.4: everything after the year may be left out; many writers drop the last quote.
_DATE = re.compile(
    r"(?:D:)?\s*(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?\s*(?:Z|([+-])(\d\d)'?(\d\d)?)?"
)


def parse_date(value: str) -> str | None:
    """A PDF date as ISO 8601 in UTC; None when it is not valid."""
    found = _DATE.match(value.strip())
    if found is None:
        return None
    year, *parts = found.groups()
    month, day, hour, minute, second = (int(part) if part else None for part in parts[:5])
    sign, hours, minutes = parts[5:]
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        zone = timezone(-offset if sign == "-" else offset)
        local = datetime(
            int(year), month or 1, day or 1, hour or 0, minute or 0, second or 0, tzinfo=zone
        )
        return local.astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return None


def _value(document: "PdfDocument", key: str) -> str | None:
    try:
        return str(document.get_metadata_value(key))[:VALUE_CHARS].strip() or None
    except UnicodeDecodeError:
        return None


# How much of the fast text's letters pdfplumber must find, and from which factor on its characters
# are printed twice, or its words split.
_KEPT_SHARE = 0.9
_DOUBLED_SHARE = 1.15
_SPLIT_SHARE = 1.5
# The narrowest letters are a fifth as wide as the type is high.
_OVER_SHARE = 0.15
_UNKNOWN_GLYPH = re.compile(r"\(cid:\d+\)")


def read_layout(page: "Page", fast: FastPage) -> str | None:
    """The page's text by its layout if it is better than the fast one, else None."""
    printed = sum(not char["text"].isspace() for char in page.chars)
    # Bold made by printing twice: pdfium leaves out the second print, pdfplumber does not.
    if printed > _DOUBLED_SHARE * len("".join(fast.text.split())):
        size = median(char["size"] for char in page.chars)
        page = page.dedupe_chars(tolerance=_OVER_SHARE * size)
    owned: list[Owned] = find_tables(page) if fast.grid else [(char, None) for char in page.chars]
    if not (fast.disordered or fast.poor or any(table for _, table in owned)):
        return None
    text = _UNKNOWN_GLYPH.sub("", _arrange(owned, fast.disordered))
    return text if _is_better(text, fast) else None


def _is_better(text: str, fast: FastPage) -> bool:
    """pdfplumber loses letters where it knows fewer glyphs, and splits words in rotated text."""
    if fast.poor:
        return _count_letters(text) > _count_letters(fast.text)
    words = len(text.replace(" | ", " ").split())
    split = words > _SPLIT_SHARE * len(fast.text.split())
    return not split and _count_letters(text) >= _KEPT_SHARE * _count_letters(fast.text)


def _count_letters(text: str) -> int:
    return sum(map(str.isalnum, text))


def _arrange(owned: Sequence[Owned], disordered: bool) -> str:
    loose = [char for char, table in owned if table is None]
    tables = list(dict.fromkeys(table for _, table in owned if table is not None))
    lines = find_lines(loose)
    rises = sum(after.bottom < before.top for before, after in pairwise(lines))
    if disordered and rises * 10 >= len(lines) * 3:
        return _merge(sort_lines(lines), tables)
    # With columns, only the order of writing says where a table belongs.
    return _follow_writing(owned) if rises else _merge(lines, tables)


def _merge(lines: Sequence[PdfLine], tables: Sequence[Table]) -> str:
    """Lines from top to bottom, each table before the first line below its top."""
    pieces: list[str] = []
    waiting = sorted(tables, key=lambda table: table.box[1], reverse=True)
    for line in lines:
        while waiting and waiting[-1].box[1] < line.top:
            pieces.append(waiting.pop().text)
        pieces.append(line.text)
    return join_lines([*pieces, *(table.text for table in reversed(waiting))])


def _follow_writing(owned: Sequence[Owned]) -> str:
    """Each table where its first character was written."""
    pieces: list[str] = []
    loose = []
    placed: set[Table] = set()
    for char, table in owned:
        if table is None:
            loose.append(char)
        elif table not in placed:
            placed.add(table)
            pieces += (line.text for line in find_lines(loose))
            pieces.append(table.text)
            loose = []
    return join_lines([*pieces, *(line.text for line in find_lines(loose))])


LAYOUT_PAGES = 400
LAYOUT_WEIGHT = 600_000
"""Characters and drawn segments of a document; pdfplumber reads about ten thousand a second."""
LAYOUT_SECONDS = 90
"""For slow machines, where the limits above do not keep a document within its timeout."""

_BATCH_PAGES = 8


def lay_out(
    document: "PdfDocument", pages: Sequence[FastPage | None]
) -> tuple[dict[int, str], int, int]:
    """Read the pages that need it by their layout, in order, within the limits.

    Returns the texts better than the fast ones by page index, how many pages were tried, and how
    many need it but came after a limit was reached.
    """
    wanted = [(n, page) for n, page in enumerate(pages) if page is not None and page.wants_layout]
    weights = accumulate(page.weight for _, page in wanted)
    most = min(LAYOUT_PAGES, sum(weight <= LAYOUT_WEIGHT for weight in weights))
    texts: dict[int, str] = {}
    tried = 0
    deadline = time.monotonic() + LAYOUT_SECONDS
    while tried < most and time.monotonic() <= deadline:
        batch = wanted[tried : min(tried + _BATCH_PAGES, most)]
        texts |= _lay_out_batch(document, batch)
        tried += len(batch)
    return texts, tried, len(wanted) - tried


def _lay_out_batch(
    document: "PdfDocument", batch: Sequence[tuple[int, FastPage]]
) -> dict[int, str]:
    """Errors here cost only the layout: the document still has its fast text."""
    texts: dict[int, str] = {}
    with suppress(Exception):
        import pdfplumber

        # It warns of every irregularity on every page.
        logging.getLogger("pdfminer").setLevel(logging.ERROR)
        part = _cut_part(document, batch)
        with pdfplumber.open(part) as pdf:
            for page, (number, fast) in zip(pdf.pages, batch, strict=True):
                with suppress(Exception), closing(page):
                    text = read_layout(page, fast)
                    if text is not None:
                        texts[number] = text
    return texts


def _cut_part(document: "PdfDocument", batch: Sequence[tuple[int, FastPage]]) -> BytesIO:
    """These pages as a small PDF, repaired and decrypted by pdfium, and with their text upright.

    pdfplumber reads all pages of a file before it returns one, and keeps what it has parsed.
    """
    import pypdfium2

    stream = BytesIO()
    with closing(pypdfium2.PdfDocument.new()) as part:
        part.import_pages(document, [number for number, _ in batch])
        for place, (_, fast) in enumerate(batch):
            if fast.turned is not None:
                pypdfium2.raw.FPDFPage_SetRotation(part[place], fast.turned)
        part.save(stream)
    stream.seek(0)
    return stream


def extract_pdf(raw: RawDocument) -> ExtractedText:
    """All pages' text, a blank line between pages; a table's rows have ` | ` between cells."""
    with closing(_open_pdf(raw)) as document:
        pages = list(read_pages(document))
        better, tried, skipped = lay_out(document, pages)
        texts = [better.get(n, page.text) for n, page in enumerate(pages) if page is not None]
        texts = [join_words(text) if HYPHEN_MARK in text else text for text in texts]
        # Cleaned now, so that what is cleaned as a whole later stays where it is.
        texts = [clean_text(text) for text in texts]
        if not any(map(str.strip, texts)):
            raise _no_text_fault(raw, pages)
        return ExtractedText(
            text="\n\n".join(filter(None, texts)),
            title=_value(document, "Title"),
            media_type="application/pdf",
            metadata={
                "pages": len(pages),
                PAGE_STARTS: _page_starts(pages, texts),
                "author": _value(document, "Author"),
                "subject": _value(document, "Subject"),
                "keywords": _value(document, "Keywords"),
                "created": parse_date(_value(document, "CreationDate") or ""),
                "unreadable_pages": len(pages) - len(texts) or None,
                "layout_pages": tried or None,
                "layout_skipped_pages": skipped or None,
            },
        )


def _page_starts(pages: Sequence[FastPage | None], texts: Sequence[str]) -> list[int]:
    """Where each page begins in the whole text; one without text begins where the next does."""
    lengths = iter(texts)
    starts, start = [], 0
    for page in pages:
        starts.append(start)
        if page is not None and (text := next(lengths)):
            start += len(text) + len("\n\n")
    return starts


def _open_pdf(raw: RawDocument) -> "PdfDocument":
    import pypdfium2

    try:
        return pypdfium2.PdfDocument(raw.content)
    except pypdfium2.PdfiumError as error:
        kind, reason = ErrorClass.CORRUPTION, f"broken and cannot be opened ({error})"
        if error.err_code in (pypdfium2.raw.FPDF_ERR_PASSWORD, pypdfium2.raw.FPDF_ERR_SECURITY):
            kind, reason = ErrorClass.FORBIDDEN, "encrypted; remove its password and send it again"
        raise DocumentFault(kind, f"{raw.name}: the PDF is {reason}") from error


def _no_text_fault(raw: RawDocument, pages: Sequence[FastPage | None]) -> DocumentFault:
    if pages and all(page is None for page in pages):
        reason = f"none of its {len(pages)} pages can be read"
        return DocumentFault(ErrorClass.CORRUPTION, f"{raw.name}: {reason}")
    reason = "the PDF has no text layer (scanned images?); run OCR on it first"
    return DocumentFault(ErrorClass.EMPTY, f"{raw.name}: {reason}")
