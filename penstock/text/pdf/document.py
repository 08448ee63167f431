"""Text and metadata of a PDF, by pdfium."""

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from penstock.documents import ExtractedText, RawDocument
from penstock.errors import DocumentFault, ErrorClass

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument  # type: ignore[import-untyped]


def extract_pdf(raw: RawDocument) -> ExtractedText:
    """All pages' text, a blank line between pages."""
    with closing(_open_pdf(raw)) as document:
        pages = list(_page_texts(document))
        readable = [page for page in pages if page is not None]
        if not any(page.strip() for page in readable):
            raise _textless(raw, pages)
        return ExtractedText(
            text="\n\n".join(readable),
            title=document.get_metadata_value("Title"),
            media_type="application/pdf",
            metadata={
                "pages": len(pages),
                "author": document.get_metadata_value("Author"),
                "unreadable_pages": len(pages) - len(readable) or None,
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


def _page_texts(document: "PdfDocument") -> Iterator[str | None]:
    """One text per page, in order; None for a page pdfium cannot load."""
    from pypdfium2 import PdfiumError

    for index in range(len(document)):
        try:
            yield _page_text(document, index)
        except PdfiumError:
            yield None


def _page_text(document: "PdfDocument", index: int) -> str:
    with closing(document[index]) as page, closing(page.get_textpage()) as textpage:
        return str(textpage.get_text_range())


def _textless(raw: RawDocument, pages: list[str | None]) -> DocumentFault:
    if pages and all(page is None for page in pages):
        return DocumentFault(
            ErrorClass.CORRUPTION, f"{raw.name}: none of its {len(pages)} pages can be read"
        )
    return DocumentFault(
        ErrorClass.EMPTY,
        f"{raw.name}: the PDF has no text layer (scanned images?); run OCR on it first",
    )
