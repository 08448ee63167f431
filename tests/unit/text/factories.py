"""Small documents of every kind, made on the spot."""

import json
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import docx
from fpdf import FPDF

from penstock.documents import RawDocument

PARAGRAPH = (
    "The penstock leads the water from the reservoir down to the wheel, and its gate lets through "
    "what the wheel can take. In a dry summer the gate stays nearly shut for weeks, and the miller "
    "mends the leats instead. When the snow melts, it is the other way round."
)


def make_raw(
    content: bytes | str, name: str = "page", media_type: str | None = None
) -> RawDocument:
    data = content.encode() if isinstance(content, str) else content
    return RawDocument(name, data, media_type)


def make_page(body: str = f"<p>{PARAGRAPH}</p>", head: str = "<title>Mills</title>") -> str:
    return f"<!DOCTYPE html><html><head>{head}</head><body>{body}</body></html>"


def make_article(number: int = 0) -> RawDocument:
    article = (
        f"<article><h1>Mill {number}</h1><p>{PARAGRAPH}</p><p>{PARAGRAPH} {number}.</p></article>"
    )
    return make_raw(make_page(article), f"https://mills.example/{number}")


def make_pdf(pages: Sequence[str], *, title: str = "", password: str | None = None) -> bytes:
    pdf = FPDF()
    pdf.set_title(title)
    pdf.set_author("A. Miller")
    if password is not None:
        pdf.set_encryption(owner_password="owner", user_password=password)
    for text in pages:
        pdf.add_page()
        pdf.set_font("Helvetica", size=12)
        if text:
            pdf.multi_cell(0, text=text)
        else:
            pdf.rect(10, 10, 50, 50, style="F")
    return bytes(pdf.output())


def make_docx() -> bytes:
    document = docx.Document()
    document.core_properties.title = "Résumé"
    document.core_properties.author = "Jane Doe"
    document.sections[0].header.paragraphs[0].text = "Jane Doe, jane@mills.example"
    document.add_paragraph("Before the table")
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip(table._cells, ("Year", "Mill", "1999", "Old Mill"), strict=True):
        cell.text = text
    document.add_paragraph("After the table")
    buffer = BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def make_posting(**changes: Any) -> dict[str, Any]:
    return {
        "@context": "https://schema.org",
        "@type": "JobPosting",
        "title": "Miller &amp; Baker",
        "hiringOrganization": {"@type": "Organization", "name": "Mills Ltd"},
        "jobLocation": {
            "@type": "Place",
            "address": {"addressLocality": "Ulm", "addressRegion": "BW", "addressCountry": "DE"},
        },
        "employmentType": ["FULL_TIME", "CONTRACTOR"],
        "baseSalary": {
            "currency": "EUR",
            "value": {"minValue": 50000, "maxValue": 60000, "unitText": "YEAR"},
        },
        "description": "<p>Grind the <b>corn</b>.</p><ul><li>Every day</li><li>With care</li></ul>",
        "qualifications": "Strong arms",
        **changes,
    }


def make_posting_page(data: Any) -> RawDocument:
    script = f'<script type="application/ld+json">{json.dumps(data)}</script>'
    return make_raw(make_page(head=f"<title>Mills Ltd careers</title>{script}"))
