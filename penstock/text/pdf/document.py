"""Text and metadata of a PDF: pdfium for every page, pdfplumber for those that call for layout."""

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from penstock.documents import ExtractedText, RawDocument
from penstock.errors import DocumentFault, ErrorClass
from penstock.text.pdf.layout import Layout, lay_out
from penstock.text.pdf.lines import HYPHEN_MARK, join_words
from penstock.text.pdf.metadata import read_metadata, read_title
from penstock.text.pdf.pages import FastPage, read_pages

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument  # type: ignore[import-untyped]


def extract_pdf(raw: RawDocument) -> ExtractedText:
    """All pages' text, a blank line between pages; a table's rows have ` | ` between cells."""
    with closing(_open_pdf(raw)) as document:
        pages = list(read_pages(document))
        layout = lay_out(document, pages)
        texts = _page_texts(pages, layout)
        if not any(map(str.strip, texts)):
            raise _textless(raw, pages)
        return ExtractedText(
            text="\n\n".join(texts),
            title=read_title(document),
            media_type="application/pdf",
            metadata={
                "pages": len(pages),
                **read_metadata(document),
                "unreadable_pages": len(pages) - len(texts) or None,
                "layout_pages": layout.tried or None,
                "layout_skipped_pages": layout.skipped or None,
            },
        )


def _open_pdf(raw: RawDocument) -> "PdfDocument":
    import pypdfium2

    try:
        return pypdfium2.PdfDocument(raw.content)
    except pypdfium2.PdfiumError as error:
        if error.err_code in (pypdfium2.raw.FPDF_ERR_PASSWORD, pypdfium2.raw.FPDF_ERR_SECURITY):
            raise DocumentFault(
                ErrorClass.FORBIDDEN,
                f"{raw.name}: the PDF is encrypted; remove its password and send it again",
            ) from error
        raise DocumentFault(
            ErrorClass.CORRUPTION, f"{raw.name}: the PDF is broken and cannot be opened ({error})"
        ) from error


def _page_texts(pages: Sequence[FastPage | None], layout: Layout) -> list[str]:
    texts = (
        layout.texts.get(number, page.text) for number, page in enumerate(pages) if page is not None
    )
    return [join_words(text) if HYPHEN_MARK in text else text for text in texts]


def _textless(raw: RawDocument, pages: Sequence[FastPage | None]) -> DocumentFault:
    if pages and all(page is None for page in pages):
        return DocumentFault(
            ErrorClass.CORRUPTION, f"{raw.name}: none of its {len(pages)} pages can be read"
        )
    return DocumentFault(
        ErrorClass.EMPTY,
        f"{raw.name}: the PDF has no text layer (scanned images?); run OCR on it first",
    )
