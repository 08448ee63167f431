"""The bytes decide what a document is; its name and declared type only help."""

import zipfile
from io import BytesIO

import pytest

from penstock.text import kinds
from penstock.text.kinds import detect_media_type
from tests.unit.text.factories import make_docx, make_page, make_pdf, make_raw


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (make_pdf(["x"]), kinds.PDF),
        (b"\n\n%PDF-1.4 rest", kinds.PDF),
        (make_docx(), kinds.DOCX),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), kinds.OLE),
        (make_page(), kinds.HTML),
        ("\ufeff" + make_page(), kinds.HTML),
        (make_page().encode("utf-16"), kinds.HTML),
        ("<!-- saved --><html><body>x", kinds.HTML),
        ('<?xml version="1.0"?><!DOCTYPE html><html></html>', kinds.HTML),
        ("<div>just a <b>part</b></div>", kinds.HTML),
        ('<?xml version="1.0"?><feed/>', kinds.XML),
        ("<feed><entry/></feed>", kinds.XML),
        ('{"a": [1, 2]}', kinds.JSON),
        ("[see the mill](https://mills.example)", kinds.PLAIN),
        ("plain words", kinds.PLAIN),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "image/png"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        (bytes(range(256)) * 8, kinds.BINARY),
    ],
)
def test_content_tells_the_type_without_any_hint(content: bytes | str, expected: str) -> None:
    assert detect_media_type(make_raw(content, "no-suffix")) == expected


@pytest.mark.parametrize(
    ("content", "name", "declared", "expected"),
    [
        (make_page(), "report.pdf", "application/pdf", kinds.HTML),
        (make_pdf(["x"]), "page.html", "text/html; charset=utf-8", kinds.PDF),
        ("a,b\n1,2", "table.csv", None, kinds.CSV),
        ("a,b\n1,2", "table.csv", "text/plain", kinds.CSV),
        ("a,b\n1,2", "https://mills.example/table.csv?day=1", None, kinds.CSV),
        ("# Title", "README.md", None, kinds.MARKDOWN),
        ("<p align=center>logo</p>", "README.md", None, kinds.MARKDOWN),
        ("Title\n=====", "index.rst", None, kinds.RST),
        ("{broken", "data.json", None, kinds.JSON),
        ("no tags at all", "page", "text/html", kinds.HTML),
        (bytes(range(256)), "cut.pdf", None, kinds.PDF),
        (b"PK\x03\x04cut short", "cv.docx", None, kinds.DOCX),
        (b"PK\x03\x04cut short", "stuff", None, kinds.ZIP),
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
    assert detect_media_type(make_raw(make_zip(a="x"), "cv.docx")) == kinds.ZIP


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (make_zip(word__document2="x"), kinds.DOCX),
        (make_zip(xl__workbook="x"), kinds.XLSX),
        (make_zip(ppt__presentation="x"), kinds.PPTX),
        (make_zip(mimetype="application/epub+zip"), "application/epub+zip"),
        (
            make_zip(mimetype="application/vnd.oasis.opendocument.text"),
            "application/vnd.oasis.opendocument.text",
        ),
        (make_zip(mimetype="anything at all"), kinds.ZIP),
    ],
)
def test_an_archive_is_what_is_inside_it(content: bytes, expected: str) -> None:
    assert detect_media_type(make_raw(content, "cv.pdf")) == expected


@pytest.mark.parametrize(
    ("content", "name", "declared", "expected"),
    [
        ("a,b\n1,2", "table.csv", "application/octet-stream", kinds.CSV),
        ("a,b\n1,2", "table.csv", "application/pdf", kinds.CSV),
        ("a,b\n1,2", "table.csv", "text/html", kinds.CSV),
        ("a\tb\n1\t2", "table.tsv", None, kinds.CSV),
        ('{"a": 1}\n{"a": 2}', "lines.jsonl", None, kinds.JSON),
        ('{"a": 1}\n{"a": 2}', "lines", "application/x-ndjson", kinds.JSON),
        ('{"a": 1}\n{"a": 2}', "lines", None, kinds.JSON),
        ("<feed/>", "x", "application/atom+xml; charset=utf-8", kinds.XML),
        ("words", "x", "application/ld+json", kinds.PLAIN),
        ("words", "http://[not an address/x.md?a=b.csv", None, kinds.MARKDOWN),
    ],
)
def test_declared_types_that_lie_mislead_nobody(
    content: str, name: str, declared: str | None, expected: str
) -> None:
    assert detect_media_type(make_raw(content, name, declared)) == expected


def test_a_page_below_a_warning_is_still_a_page() -> None:
    assert detect_media_type(make_raw(f"Warning: no wheel\n{make_page()}")) == kinds.HTML


def test_a_text_on_html_is_no_page() -> None:
    assert detect_media_type(make_raw("Write <html> first, then <title>.")) == kinds.PLAIN


def test_a_pdf_without_its_beginning_is_still_no_text() -> None:
    rest = b"<< /Length 5 >>\nendobj\n9 0 obj\nstartxref\n1234\n%%EOF"
    assert detect_media_type(make_raw(rest, "cut.pdf")) == kinds.PDF
    assert detect_media_type(make_raw(rest, "cut.txt")) == kinds.PLAIN


def test_a_text_with_a_hole_is_still_a_text() -> None:
    holed = b"before " + bytes(50) + b" and quite a lot of words after the hole in it"
    assert detect_media_type(make_raw(holed, "a.txt")) == kinds.PLAIN
    assert detect_media_type(make_raw(holed, "a.bin")) == kinds.BINARY


def test_json_too_large_to_be_parsed_twice_is_told_by_its_ends() -> None:
    rows = "[" + ", ".join(['{"a": 1}'] * 100_000)
    assert detect_media_type(make_raw(rows + "]")) == kinds.JSON
    assert detect_media_type(make_raw(rows + ",")) == kinds.PLAIN


def test_comments_without_end_take_no_time() -> None:
    assert detect_media_type(make_raw("<!---->" * 1000 + "<x/>")) == kinds.PLAIN
