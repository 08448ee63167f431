"""Three ways to set a résumé as PDF: one column, a side column, and a table of positions."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from entrypoints.demo.resume import Kind, Line, Resume, Section

if TYPE_CHECKING:
    from fpdf import FPDF

_WRITTEN_AT = datetime(2026, 1, 15, 9, 0, tzinfo=UTC)
_SIDE_COLUMN = frozenset({"Skills", "Languages", "Certifications"})
_SIDE_WIDTH_MM = 56.0
_MARGIN_MM = 18.0


def set_in_one_column(resume: Resume) -> bytes:
    pdf = _new_document(resume, "Times")
    _write(pdf, resume.name, size=22, style="B")
    for line in resume.contact:
        _write(pdf, line, size=10, style="I")
    _write_sections(pdf, resume.sections)
    return bytes(pdf.output())


def set_with_side_column(resume: Resume) -> bytes:
    pdf = _new_document(resume, "Helvetica")
    _write(pdf, resume.name, size=24, style="B")
    top = pdf.get_y() + 4
    side = [section for section in resume.sections if section.title in _SIDE_COLUMN]
    main = [section for section in resume.sections if section.title not in _SIDE_COLUMN]
    pdf.set_y(top)
    pdf.set_right_margin(pdf.w - _MARGIN_MM - _SIDE_WIDTH_MM)
    for line in resume.contact:
        _write(pdf, line, size=9)
    _write_sections(pdf, side)
    pdf.set_right_margin(_MARGIN_MM)
    pdf.set_left_margin(_MARGIN_MM + _SIDE_WIDTH_MM + 6)
    pdf.set_y(top)
    _write_sections(pdf, main)
    return bytes(pdf.output())


def set_with_table(resume: Resume) -> bytes:
    pdf = _new_document(resume, "Helvetica")
    _write(pdf, resume.name, size=20, style="B")
    for line in resume.contact:
        _write(pdf, line, size=9)
    for section in resume.sections:
        if section.title == "Experience":
            _write_table(pdf, section)
        else:
            _write_sections(pdf, [section])
    return bytes(pdf.output())


def _new_document(resume: Resume, family: str) -> "FPDF":
    from fpdf import FPDF

    pdf = FPDF(format="A4")
    # Compressed streams differ between builds of zlib; the committed bytes must not.
    pdf.set_compression(False)
    pdf.set_creation_date(_WRITTEN_AT)
    pdf.set_producer("Penstock demo corpus")
    pdf.set_title(f"Résumé of {resume.name}")
    pdf.set_author(resume.name)
    pdf.set_margin(_MARGIN_MM)
    pdf.set_font(family, size=10)
    pdf.add_page()
    return pdf


def _write_sections(pdf: "FPDF", sections: Iterable[Section]) -> None:
    for section in sections:
        _write_heading(pdf, section.title)
        for line in section.lines:
            _write_line(pdf, line)


def _write_heading(pdf: "FPDF", title: str) -> None:
    pdf.ln(3)
    _write(pdf, title.upper(), size=11, style="B")
    pdf.line(pdf.l_margin, pdf.get_y(), pdf.w - pdf.r_margin, pdf.get_y())
    pdf.ln(1.5)


def _write_line(pdf: "FPDF", line: Line) -> None:
    if line.kind is Kind.ENTRY:
        _write(pdf, ", ".join(line.parts[:-1]), size=10, style="B")
        _write(pdf, line.parts[-1], size=9, style="I")
    elif line.kind is Kind.BULLET:
        _write(pdf, f"· {line.text}", size=10)
    else:
        _write(pdf, line.text, size=10)


def _write_table(pdf: "FPDF", section: Section) -> None:
    _write_heading(pdf, section.title)
    pdf.set_font(size=9, style="")
    with pdf.table(col_widths=(36, 36, 102), text_align="LEFT") as table:
        table.row(("Period", "Position", "What I did"))
        for entry, details in _group_entries(section):
            position, employer, period = entry.parts
            table.row((period, f"{position}\n{employer}", "\n".join(details)))


def _group_entries(section: Section) -> list[tuple[Line, list[str]]]:
    groups: list[tuple[Line, list[str]]] = []
    for line in section.lines:
        if line.kind is Kind.ENTRY:
            groups.append((line, []))
        else:
            groups[-1][1].append(line.text)
    return groups


def _write(pdf: "FPDF", text: str, *, size: int, style: str = "") -> None:
    pdf.set_font(size=size, style=style)
    pdf.multi_cell(0, size * 0.5, text, align="L", new_x="LMARGIN", new_y="NEXT")
