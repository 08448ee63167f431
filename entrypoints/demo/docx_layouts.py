"""Three ways to set a résumé as DOCX: headings, a timeline table, and a grid of skills."""

from datetime import datetime
from io import BytesIO
from typing import TYPE_CHECKING
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from entrypoints.demo.resume import Kind, Line, Resume, Section

if TYPE_CHECKING:
    from docx.document import Document
    from docx.table import _Cell

_KEPT_TABLE_STYLES = frozenset({"Normal Table", "Table Grid"})
_UNUSED_PARTS = ("/stylesWithEffects", "/thumbnail")
_ZIP_DATE = (2026, 1, 15, 9, 0, 0)


def set_with_headings(resume: Resume) -> bytes:
    document = _new_document(resume)
    for section in resume.sections:
        _write_section(document, section)
    return _pack(document)


def set_as_timeline(resume: Resume) -> bytes:
    document = _new_document(resume)
    for section in resume.sections:
        if any(line.kind is Kind.ENTRY for line in section.lines):
            _write_timeline(document, section)
        else:
            _write_section(document, section)
    return _pack(document)


def set_with_skill_grid(resume: Resume) -> bytes:
    document = _new_document(resume)
    for section in resume.sections:
        if section.title == "Skills":
            _write_grid(document, section, columns=2)
        else:
            _write_section(document, section)
    return _pack(document)


def _new_document(resume: Resume) -> "Document":
    import docx

    document = docx.Document()
    _drop_unused_parts(document)
    document.core_properties.author = resume.name
    document.core_properties.title = f"Résumé of {resume.name}"
    document.core_properties.comments = ""
    # Core properties hold UTC without saying so.
    written_at = datetime(*_ZIP_DATE)  # noqa: DTZ001
    document.core_properties.created = document.core_properties.modified = written_at
    document.add_heading(resume.name, level=0)
    for line in resume.contact:
        document.add_paragraph(line)
    return document


def _drop_unused_parts(document: "Document") -> None:
    """The default template brings 700 kB of table styles and a thumbnail of another document."""
    from docx.enum.style import WD_STYLE_TYPE

    for style in list(document.styles):
        if style.type == WD_STYLE_TYPE.TABLE and style.name not in _KEPT_TABLE_STYLES:
            style.delete()
    for relationships in (document.part.rels, document.part.package.rels):
        for key, relationship in list(relationships.items()):
            if relationship.reltype.endswith(_UNUSED_PARTS):
                del relationships[key]


def _write_section(document: "Document", section: Section) -> None:
    document.add_heading(section.title, level=1)
    for line in section.lines:
        _write_line(document, line)


def _write_line(document: "Document", line: Line) -> None:
    if line.kind is Kind.ENTRY:
        paragraph = document.add_paragraph()
        paragraph.add_run(line.parts[0]).bold = True
        paragraph.add_run(", " + ", ".join(line.parts[1:]))
    elif line.kind is Kind.BULLET:
        document.add_paragraph(line.text, style="List Bullet")
    else:
        document.add_paragraph(line.text)


def _write_timeline(document: "Document", section: Section) -> None:
    document.add_heading(section.title, level=1)
    table = document.add_table(rows=0, cols=2, style="Table Grid")
    cell: _Cell | None = None
    for line in section.lines:
        if line.kind is Kind.ENTRY:
            position, employer, period = line.parts
            date_cell, cell = table.add_row().cells
            date_cell.text = period
            cell.text = f"{position}, {employer}"
        elif cell is not None:
            cell.add_paragraph(line.text, style="List Bullet")


def _write_grid(document: "Document", section: Section, *, columns: int) -> None:
    document.add_heading(section.title, level=1)
    items = [item.strip() for line in section.lines for item in line.text.split(", ")]
    table = document.add_table(rows=-(-len(items) // columns), cols=columns, style="Table Grid")
    for at, item in enumerate(items):
        table.cell(at // columns, at % columns).text = item


def _pack(document: "Document") -> bytes:
    """Save with fixed dates and without compression, which differs between builds of zlib."""
    saved, packed = BytesIO(), BytesIO()
    document.save(saved)
    with ZipFile(saved) as source, ZipFile(packed, "w", ZIP_STORED) as target:
        for name in source.namelist():
            entry = ZipInfo(name, _ZIP_DATE)
            entry.create_system = 0
            target.writestr(entry, source.read(name))
    return packed.getvalue()
