"""Small valid documents of every format, each with a phrase that its text must hold."""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO

import docx
from fpdf import FPDF

from penstock.errors import ErrorClass

UNSUPPORTED = ErrorClass.UNSUPPORTED
ODT = b"application/vnd.oasis.opendocument.text"
PHRASE = "the gate lets through what the wheel can take"
PROSE = (
    f"A penstock leads water from the reservoir to the wheel, and {PHRASE}. In a dry summer it "
    "stays nearly shut for weeks, and the miller mends the leats instead of grinding corn."
)


@dataclass(frozen=True, slots=True)
class Seed:
    """A valid document: its format's usual suffix, and the fault it ends as, if it does."""

    name: str
    suffix: str
    content: bytes
    fault: ErrorClass | None = None


def make_seeds() -> list[Seed]:
    """The same bytes every time."""
    return [
        Seed("pdf", ".pdf", make_pdf(compress=True)),
        Seed("pdf-plain", ".pdf", make_pdf(compress=False)),
        Seed("docx", ".docx", make_docx()),
        Seed("html", ".html", make_html().encode()),
        Seed("txt", ".txt", f"{PROSE}\n\nSecond paragraph, naïve and short.\n".encode()),
        Seed("latin", ".txt", f"Überlauf. {PROSE} Schütz, Mühle, Müller.".encode("latin-1")),
        Seed("utf16", ".txt", f"{PROSE} Überlauf.".encode("utf-16")),
        Seed("md", ".md", f"---\ntitle: Mills\n---\n# On mills\n\n{PROSE}\n\n- one\n".encode()),
        Seed("rst", ".rst", f"On mills\n========\n\n{PROSE}\n\n.. note:: wet\n".encode()),
        Seed("csv", ".csv", f'year,note\n1999,"{PROSE}"\n2001,"a ""big"" wheel"\n'.encode()),
        Seed("tsv", ".tsv", f"year\tnote\n1999\t{PROSE}\n2001\twheel\n".encode()),
        Seed("json", ".json", json.dumps({"mill": {"wheels": [1, 2.5], "note": PROSE}}).encode()),
        Seed("jsonl", ".jsonl", b"\n".join(make_record(i) for i in range(3))),
        Seed("xml", ".xml", make_xml().encode()),
        Seed("rss", ".rss", make_feed().encode()),
        Seed("doc", ".doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), UNSUPPORTED),
        Seed("zip", ".zip", make_zip({"a.txt": b"words", "b/c.txt": b"more"}), UNSUPPORTED),
        Seed("xlsx", ".xlsx", make_zip({"xl/workbook.xml": b"<workbook/>"}), UNSUPPORTED),
        Seed("pptx", ".pptx", make_zip({"ppt/presentation.xml": b"<p/>"}), UNSUPPORTED),
        Seed("odt", ".odt", make_zip({"mimetype": ODT, "content.xml": b"<x/>"}), UNSUPPORTED),
        Seed("epub", ".epub", make_zip({"mimetype": b"application/epub+zip"}), UNSUPPORTED),
        Seed("png", ".png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), UNSUPPORTED),
        Seed("rtf", ".rtf", rb"{\rtf1\ansi words \b bold\b0 }", UNSUPPORTED),
    ]


def make_pdf(*, compress: bool) -> bytes:
    pdf = FPDF()
    pdf.set_compression(compress)
    pdf.set_title("Mills")
    pdf.set_creation_date(datetime(2020, 1, 1, tzinfo=UTC))
    for number in (1, 2):
        pdf.add_page()
        pdf.set_font("Helvetica", size=12)
        pdf.cell(text=f"Page {number}: {PHRASE}.")
    return bytes(pdf.output())


def make_docx() -> bytes:
    document = docx.Document()
    document.core_properties.title = "Mills"
    section = document.sections[0]
    section.header.paragraphs[0].text = "Jane Miller"
    section.footer.paragraphs[0].text = "Printed in Ulm"
    document.add_heading("On mills")
    document.add_paragraph(PROSE)
    table = document.add_table(rows=2, cols=2)
    table.cell(0, 0).text = "Year"
    table.cell(1, 1).text = "Old Mill"
    buffer = BytesIO()
    document.save(buffer)
    return make_zip(read_zip(buffer.getvalue()))


def make_html() -> str:
    article = f"<article><h1>On mills</h1><p>{PROSE}</p><p>{PROSE}</p></article>"
    return (
        '<!DOCTYPE html><html><head><meta charset="utf-8"><title>Mills</title></head>'
        f"<body><nav><a href='/'>Home</a></nav>{article}<script>'<p>'</script></body></html>"
    )


def make_record(number: int) -> bytes:
    return json.dumps({"number": number, "note": PROSE}).encode()


def make_xml() -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8"?><mills xmlns="urn:mills"><!-- wet -->'
        f"<mill id='1'><note>{PROSE}</note><x:y xmlns:x='urn:x'><![CDATA[a < b]]></x:y></mill>"
        "</mills>"
    )


def make_feed() -> str:
    item = f"<item><title>Wheel</title><description>&lt;p&gt;{PROSE}&lt;/p&gt;</description></item>"
    channel = f"<channel><title>Mills</title>{item}</channel>"
    return f'<?xml version="1.0"?><rss version="2.0">{channel}</rss>'


def read_zip(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def make_zip(entries: Mapping[str, bytes]) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            # A fixed date, or the archive would differ from one run to the next.
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
