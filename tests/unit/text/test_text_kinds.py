"""The bytes decide what a document is; its name and declared type only help."""

import zipfile
from io import BytesIO

import pytest

from penstock.text import media_types
from penstock.text.media_types import detect_media_type
from tests.unit.text.factories import make_docx, make_page, make_pdf, make_raw


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (make_pdf(["x"]), media_types.PDF),
        (b"\n\n%PDF-1.4 rest", media_types.PDF),
        (make_docx(), media_types.DOCX),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), media_types.OLE),
        (make_page(), media_types.HTML),
        ("\ufeff" + make_page(), media_types.HTML),
        (make_page().encode("utf-16"), media_types.HTML),
        ("<!-- saved --><html><body>x", media_types.HTML),
        ('<?xml version="1.0"?><!DOCTYPE html><html></html>', media_types.HTML),
        ("<div>just a <b>part</b></div>", media_types.HTML),
        ('<?xml version="1.0"?><feed/>', media_types.XML),
        ("<feed><entry/></feed>", media_types.XML),
        ('{"a": [1, 2]}', media_types.JSON),
        ("[see the mill](https://mills.example)", media_types.PLAIN),
        ("plain words", media_types.PLAIN),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "image/png"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (bytes(range(256)) * 8, media_types.BINARY),
    ],
)
def test_the_type_is_detected_from_the_content_alone(content: bytes | str, expected: str) -> None:
    assert detect_media_type(make_raw(content, "no-suffix")) == expected


@pytest.mark.parametrize(
    ("content", "name", "declared", "expected"),
    [
        (make_page(), "report.pdf", "application/pdf", media_types.HTML),
        (make_pdf(["x"]), "page.html", "text/html; charset=utf-8", media_types.PDF),
        ("a,b\n1,2", "table.csv", None, media_types.CSV),
        ("a,b\n1,2", "table.csv", "text/plain", media_types.CSV),
        ("a,b\n1,2", "https://mills.example/table.csv?day=1", None, media_types.CSV),
        ("# Title", "README.md", None, media_types.MARKDOWN),
        ("<p align=center>logo</p>", "README.md", None, media_types.MARKDOWN),
        ("Title\n=====", "index.rst", None, media_types.RST),
        ("{broken", "data.json", None, media_types.JSON),
        ("no tags at all", "page", "text/html", media_types.HTML),
        (bytes(range(256)), "cut.pdf", None, media_types.PDF),
        (b"PK\x03\x04cut short", "cv.docx", None, media_types.DOCX),
        (b"PK\x03\x04cut short", "stuff", None, media_types.ZIP),
    ],
)
def test_hints_help_only_where_content_leaves_it_open(
    content: bytes | str, name: str, declared: str | None, expected: str
) -> None:
    assert detect_media_type(make_raw(content, name, declared)) == expected


def make_zip(**entries: str) -> bytes:
    """An archive of these entries; `__` stands for `/`."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name.replace("__", "/"), content)
    return buffer.getvalue()


def test_a_zip_named_docx_is_still_a_zip() -> None:
    assert detect_media_type(make_raw(make_zip(a="x"), "cv.docx")) == media_types.ZIP


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (make_zip(word__document2="x"), media_types.DOCX),
        (make_zip(xl__workbook="x"), media_types.XLSX),
        (make_zip(ppt__presentation="x"), media_types.PPTX),
        (make_zip(mimetype="application/epub+zip"), "application/epub+zip"),
        (
            make_zip(mimetype="application/vnd.oasis.opendocument.text"),
            "application/vnd.oasis.opendocument.text",
        ),
        (make_zip(mimetype="anything at all"), media_types.ZIP),
    ],
)
def test_an_archive_is_what_is_inside_it(content: bytes, expected: str) -> None:
    assert detect_media_type(make_raw(content, "cv.pdf")) == expected


@pytest.mark.parametrize(
    ("content", "name", "declared", "expected"),
    [
        ("a,b\n1,2", "table.csv", "application/octet-stream", media_types.CSV),
        ("a,b\n1,2", "table.csv", "application/pdf", media_types.CSV),
        ("a,b\n1,2", "table.csv", "text/html", media_types.CSV),
        ("a\tb\n1\t2", "table.tsv", None, media_types.CSV),
        ('{"a": 1}\n{"a": 2}', "lines.jsonl", None, media_types.JSON),
        ('{"a": 1}\n{"a": 2}', "lines", "application/x-ndjson", media_types.JSON),
        ('{"a": 1}\n{"a": 2}', "lines", None, media_types.JSON),
        ("<feed/>", "x", "application/atom+xml; charset=utf-8", media_types.XML),
        ("words", "x", "application/ld+json", media_types.PLAIN),
        ("words", "http://[not an address/x.md?a=b.csv", None, media_types.MARKDOWN),
    ],
)
def test_wrong_declared_types_are_ignored(
    content: str, name: str, declared: str | None, expected: str
) -> None:
    assert detect_media_type(make_raw(content, name, declared)) == expected


def test_a_page_below_a_warning_is_still_a_page() -> None:
    assert detect_media_type(make_raw(f"Warning: no wheel\n{make_page()}")) == media_types.HTML


def test_a_text_on_html_is_no_page() -> None:
    assert detect_media_type(make_raw("Write <html> first, then <title>.")) == media_types.PLAIN


def test_a_pdf_without_its_beginning_is_still_no_text() -> None:
    rest = b"<< /Length 5 >>\nendobj\n9 0 obj\nstartxref\n1234\n%%EOF"
    assert detect_media_type(make_raw(rest, "cut.pdf")) == media_types.PDF
    assert detect_media_type(make_raw(rest, "cut.txt")) == media_types.PLAIN


def test_a_text_with_a_hole_is_still_a_text() -> None:
    holed = b"before " + bytes(50) + b" and quite a lot of words after the hole in it"
    assert detect_media_type(make_raw(holed, "a.txt")) == media_types.PLAIN
    assert detect_media_type(make_raw(holed, "a.bin")) == media_types.BINARY


def test_large_json_is_recognised_by_its_start_and_end() -> None:
    rows = "[" + ", ".join(['{"a": 1}'] * 100_000)
    assert detect_media_type(make_raw(rows + "]")) == media_types.JSON
    assert detect_media_type(make_raw(rows + ",")) == media_types.PLAIN


def test_comments_without_end_take_no_time() -> None:
    assert detect_media_type(make_raw("<!---->" * 1000 + "<x/>")) == media_types.PLAIN
