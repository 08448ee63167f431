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


def test_a_zip_named_docx_is_still_a_zip() -> None:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "x")
    assert detect_media_type(make_raw(buffer.getvalue(), "cv.docx")) == kinds.ZIP
