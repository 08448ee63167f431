"""Every format gives its text, and every failure its class."""

import struct
import sys
import zipfile
from io import BytesIO

import docx
import pytest

from penstock.errors import DocumentFault, ErrorClass
from penstock.text.extract import extract_text
from tests.unit.text.factories import PARAGRAPH, make_docx, make_page, make_pdf, make_raw


def fault_of(content: bytes | str, name: str = "file") -> DocumentFault:
    with pytest.raises(DocumentFault) as caught:
        extract_text(make_raw(content, name))
    assert name in str(caught.value)
    return caught.value


def test_a_pdf_gives_its_pages_with_a_blank_line_between() -> None:
    extracted = extract_text(make_raw(make_pdf(["First page", "Second page"], title="Mills")))
    assert extracted.text == "First page\n\nSecond page"
    assert extracted.title == "Mills"
    assert extracted.media_type == "application/pdf"
    assert extracted.metadata["pages"] == 2
    assert extracted.metadata["author"] == "A. Miller"


def test_a_word_broken_at_a_line_end_of_a_pdf_is_whole_again() -> None:
    assert extract_text(make_raw(make_pdf(["down the pen-\nstock"]))).text == "down the penstock"


@pytest.mark.parametrize("broken", ["Anna Smith-\nJones", "COVID-\n19"])
def test_a_hyphen_that_is_part_of_a_name_stays_at_a_line_end_of_a_pdf(broken: str) -> None:
    whole = broken.replace("\n", "")
    assert extract_text(make_raw(make_pdf([broken]))).text == whole


def test_a_pdf_that_only_its_owner_may_change_is_read() -> None:
    assert extract_text(make_raw(make_pdf(["open to all"], password=""))).text == "open to all"


def test_a_word_document_gives_header_paragraphs_and_tables_in_order() -> None:
    extracted = extract_text(make_raw(make_docx()))
    assert extracted.text.split("\n") == [
        "Jane Doe, jane@mills.example",
        "Before the table",
        "Year | Mill",
        "1999 | Old Mill",
        "After the table",
    ]
    assert extracted.title == "Résumé"
    assert extracted.metadata == {"author": "Jane Doe"}


def test_a_table_inside_a_cell_follows_what_the_cell_says() -> None:
    document = docx.Document()
    cell = document.add_table(rows=1, cols=2).cell(0, 1)
    cell.text = "outer"
    cell.add_table(rows=1, cols=2).cell(0, 0).text = "inner"
    buffer = BytesIO()
    document.save(buffer)
    assert extract_text(make_raw(buffer.getvalue())).text == "outer\ninner |"


def test_a_page_gives_its_main_content_without_the_rest() -> None:
    menu = "<nav><ul>" + "<li><a href='/x'>Menu entry</a></li>" * 20 + "</ul></nav>"
    article = f"<article><h1>On mills</h1><p>{PARAGRAPH}</p><p>{PARAGRAPH}</p></article>"
    extracted = extract_text(make_raw(make_page(menu + article + "<footer>Imprint</footer>")))
    assert PARAGRAPH in extracted.text
    assert "Menu entry" not in extracted.text
    assert "Imprint" not in extracted.text
    assert extracted.title == "Mills"
    assert extracted.media_type == "text/html"


def test_a_page_without_main_content_gives_its_visible_text() -> None:
    offers = "<ul><li><p>Flour</p></li><li>Bran</li></ul>"
    body = f"<div>Open <b>daily</b></div>{offers}<script>x()</script>"
    assert extract_text(make_raw(make_page(body))).text == "Open daily\n- Flour\n- Bran"


def test_the_title_for_sharing_goes_before_the_page_title() -> None:
    head = '<meta property="og:title" content="Mills"><title>Mills | Mills Ltd</title>'
    assert extract_text(make_raw(make_page(head=head))).title == "Mills"


@pytest.mark.parametrize(
    ("content", "name", "text", "title"),
    [
        ("Just words\r\n\r\n\r\n\r\nand more  \n", "a.txt", "Just words\n\nand more", None),
        ("intro\n\n# On mills #\n\nwords", "a.md", "intro\n\n# On mills #\n\nwords", "On mills"),
        ("On mills\n========\n\nwords", "a.rst", "On mills\n========\n\nwords", "On mills"),
        ('name;town\n"Mill; old";Ulm', "a.csv", "name | town\nMill; old | Ulm", None),
        (
            '{"mill": {"wheels": [1, true]}}',
            "a.json",
            "mill:\n  wheels:\n    - 1\n    - true",
            None,
        ),
        ("{broken", "a.json", "{broken", None),
        ("<a><b>one</b> two <c>three</c></a>", "a.xml", "one\ntwo\nthree", None),
    ],
)
def test_text_formats_become_readable(
    content: str, name: str, text: str, title: str | None
) -> None:
    extracted = extract_text(make_raw(content, name))
    assert (extracted.text, extracted.title) == (text, title)


def test_xml_is_read_in_its_declared_encoding() -> None:
    source = '<?xml version="1.0" encoding="ISO-8859-2"?><a>Žďár</a>'
    assert extract_text(make_raw(source.encode("iso-8859-2"))).text == "Žďár"


def test_xml_entities_are_not_expanded() -> None:
    bomb = '<!ENTITY b "&a;&a;&a;&a;">'
    source = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "boom">{bomb}]><x>safe &b;</x>'
    text = extract_text(make_raw(source)).text
    assert text.startswith("safe")
    assert "boom" not in text


def test_xml_does_not_read_other_files() -> None:
    source = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY f SYSTEM "{__file__}">]><x>safe &f;</x>'
    assert "import" not in extract_text(make_raw(source)).text


def test_text_is_clean_composed_unicode() -> None:
    extracted = extract_text(make_raw("# T\x01itle\n\nre\u0301sume\u0301 \x00 \x08end", "a.md"))
    assert extracted.text == "# Title\n\nrésumé  end"
    assert extracted.title == "Title"


def test_lone_surrogates_do_not_survive() -> None:
    extracted = extract_text(make_raw('{"k": "a\\ud800b\\u0000c"}'))
    assert extracted.text == "k: abc"


def test_titles_are_one_line_of_at_most_300_characters() -> None:
    title = extract_text(make_raw(make_page(head=f"<title> A\n\tB {'x' * 500}</title>"))).title
    assert title is not None
    assert title.startswith("A B xxx")
    assert len(title) == 300


def test_no_bytes_are_an_empty_file() -> None:
    fault = fault_of(b"")
    assert fault.kind == ErrorClass.EMPTY
    assert "the file is empty (0 bytes)" in str(fault)


@pytest.mark.parametrize("content", [" \n\t ", make_page(""), "<a> </a>"])
def test_blank_text_is_empty(content: str) -> None:
    assert fault_of(content).kind == ErrorClass.EMPTY


def test_a_pdf_of_images_is_empty() -> None:
    fault = fault_of(make_pdf(["", ""]))
    assert fault.kind == ErrorClass.EMPTY
    assert "no text layer" in str(fault)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"%PDF-1.7\nnothing of the kind", "a.pdf"),
        (bytes(range(256)) * 4, "a.pdf"),
        (make_docx()[:2000], "a.docx"),
        (make_docx()[:2000], "stuff"),
    ],
)
def test_broken_files_are_corrupt(content: bytes, name: str) -> None:
    assert fault_of(content, name).kind == ErrorClass.CORRUPTION


def test_a_word_document_without_its_parts_is_corrupt() -> None:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("word/document.xml", "<x/>")
    assert fault_of(buffer.getvalue()).kind == ErrorClass.CORRUPTION


def test_json_nested_without_end_is_corrupt() -> None:
    assert fault_of("[" * 100_000 + "]" * 100_000, "a.json").kind == ErrorClass.CORRUPTION


def test_an_archive_of_more_files_than_anybody_would_list_is_unsupported() -> None:
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 5_000_000, 0, 0)
    content = b"PK\x03\x04" + bytes(5_000_000) + end
    assert fault_of(content, "stuff").kind == ErrorClass.UNSUPPORTED


def test_an_encrypted_pdf_is_forbidden() -> None:
    assert fault_of(make_pdf(["secret"], password="pw")).kind == ErrorClass.FORBIDDEN


def test_an_encrypted_word_document_is_forbidden() -> None:
    ole = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le")
    assert fault_of(ole).kind == ErrorClass.FORBIDDEN


def test_an_old_word_document_is_unsupported_with_a_hint() -> None:
    fault = fault_of(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "cv.doc")
    assert fault.kind == ErrorClass.UNSUPPORTED
    assert ".docx" in str(fault)


@pytest.mark.parametrize(
    "content",
    [b"\x89PNG\r\n\x1a\n" + bytes(50), b"\xff\xd8\xff\xe0" + bytes(50), bytes(range(256))],
)
def test_images_and_unknown_binaries_are_unsupported(content: bytes) -> None:
    assert fault_of(content).kind == ErrorClass.UNSUPPORTED


def test_a_missing_library_is_named_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = make_docx()
    monkeypatch.setitem(sys.modules, "docx", None)
    fault = fault_of(content)
    assert fault.kind == ErrorClass.EXTRACTOR_MISSING
    assert "pip install python-docx" in str(fault)


def test_what_nobody_foresaw_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr("json.loads", fail)
    fault = fault_of('{"a": 1}', "a.json")
    assert fault.kind == ErrorClass.UNKNOWN
    assert "surprise" in str(fault)


def test_a_page_nested_without_end_still_gives_its_text() -> None:
    body = "<div>" * 5000 + PARAGRAPH + "</div>" * 5000
    assert "penstock" in extract_text(make_raw(make_page(body))).text
