"""PDFs with tables, columns, disorder and drawings, made on the spot."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from io import BytesIO

import pypdfium2  # type: ignore[import-untyped]
from fpdf import FPDF

from penstock.documents import ExtractedText
from penstock.text.extract import extract_text
from tests.unit.text.factories import PARAGRAPH, make_raw

MILLS = (("Year", "Mill", "Flow"), ("1999", "Old Mill", "12.5"), ("2001", "", "13.1"))


def make_drawing() -> FPDF:
    pdf = FPDF()
    pdf.add_page()
    pdf.set_font("Helvetica", size=11)
    return pdf


def read(pdf: FPDF) -> ExtractedText:
    return extract_text(make_raw(bytes(pdf.output()), "mills.pdf"))


def make_table(
    rows: Sequence[Sequence[str]] = MILLS, *, borders: str = "ALL", pages: int = 1
) -> FPDF:
    """On each page a paragraph, a table, a paragraph."""
    pdf = FPDF()
    pdf.set_font("Helvetica", size=11)
    for _ in range(pages):
        pdf.add_page()
        pdf.multi_cell(0, text="Before the table", new_x="LMARGIN", new_y="NEXT")
        with pdf.table(borders_layout=borders, first_row_as_headings=False) as table:
            for row in rows:
                table.row(row)
        pdf.multi_cell(0, text="After the table")
    return pdf


def make_columns() -> FPDF:
    """Two columns of text, the left one first; every line says where it stands."""
    pdf = make_drawing()
    for left, side in ((20, "left"), (110, "right")):
        for number in range(40):
            pdf.text(left, 20 + 6 * number, f"{side} line {number} of the page")
    return pdf


def make_lines(order: Sequence[int]) -> FPDF:
    """Numbered lines, written in this order."""
    pdf = make_drawing()
    for number in order:
        pdf.text(20, 20 + 6 * number, f"line {number} of the page")
    return pdf


def draw_mesh(pdf: FPDF, rows: int, columns: int, *, step: float = 10) -> None:
    for row in range(rows + 1):
        pdf.line(20, 60 + step * row, 20 + step * columns, 60 + step * row)
    for column in range(columns + 1):
        pdf.line(20 + step * column, 60, 20 + step * column, 60 + step * rows)


def turn_pages(pdf: FPDF, degrees: int) -> bytes:
    """The same PDF with its pages turned clockwise by a reader."""
    with opened(bytes(pdf.output())) as document:
        for index in range(len(document)):
            document[index].set_rotation(degrees)
        stream = BytesIO()
        document.save(stream)
    return stream.getvalue()


def wrap_in_form(pdf: FPDF) -> bytes:
    """The first page drawn as one form on a page of its own, as printers and imposers do."""
    stream = BytesIO()
    with opened(bytes(pdf.output())) as source, closing(pypdfium2.PdfDocument.new()) as target:
        page = target.new_page(*source[0].get_size())
        with closing(source.page_as_xobject(0, target)) as form:
            page.insert_obj(form.as_pageobject())
            page.gen_content()
            target.save(stream)
    return stream.getvalue()


@contextmanager
def opened(content: bytes) -> Iterator[pypdfium2.PdfDocument]:
    with closing(pypdfium2.PdfDocument(content)) as document:
        yield document


def make_paragraphs(pages: int) -> FPDF:
    pdf = FPDF()
    pdf.set_font("Helvetica", size=11)
    for number in range(pages):
        pdf.add_page()
        pdf.multi_cell(0, text=f"Page {number + 1}. {PARAGRAPH}")
    return pdf
