"""What a PDF says about itself, and PDFs that cannot be read."""

import pytest

from penstock.errors import DocumentFault, ErrorClass
from penstock.text.extract import extract_text
from penstock.text.pdf.document import VALUE_CHARS, parse_date
from tests.unit.text.factories import make_pdf, make_raw
from tests.unit.text.pdf_factories import make_drawing, make_paragraphs, make_table, read


def test_a_pdf_tells_its_subject_keywords_and_time_of_creation() -> None:
    pdf = make_paragraphs(2)
    pdf.set_subject("Water")
    pdf.set_keywords("mills, wheels")
    metadata = read(pdf).metadata
    assert metadata["pages"] == 2
    assert metadata["subject"] == "Water"
    assert metadata["keywords"] == "mills, wheels"
    assert metadata["created"].endswith("+00:00")


def test_plain_pages_need_no_closer_look() -> None:
    assert "layout_pages" not in read(make_paragraphs(3)).metadata


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("D:20240229120000+01'00'", "2024-02-29T11:00:00+00:00"),
        ("D:20240229120000-0230", "2024-02-29T14:30:00+00:00"),
        ("D:20240229120000Z", "2024-02-29T12:00:00+00:00"),
        ("20240229", "2024-02-29T00:00:00+00:00"),
        ("D:2024", "2024-01-01T00:00:00+00:00"),
        ("D:20241340", None),
        ("D:20240101000000+99'99'", None),
        ("D:00010101000000+12'00'", None),
        ("last Tuesday", None),
        ("", None),
    ],
)
def test_a_pdf_date_is_iso_in_utc_or_left_out(value: str, expected: str | None) -> None:
    assert parse_date(value) == expected


def test_junk_metadata_is_harmless() -> None:
    pdf = make_paragraphs(1)
    pdf.set_author("\x00\x01\x02")
    pdf.set_keywords("k" * 100_000)
    metadata = read(pdf).metadata
    assert "author" not in metadata
    assert len(metadata["keywords"]) == VALUE_CHARS


def test_a_lone_surrogate_in_the_metadata_is_left_out() -> None:
    content = make_pdf(["text"]).replace(b"(A. Miller)", b"<FEFFD800003F>")
    extracted = extract_text(make_raw(content))
    assert extracted.text == "text"
    assert "author" not in extracted.metadata


def test_a_pdf_without_any_text_is_empty() -> None:
    pdf = make_drawing()
    pdf.rect(20, 20, 50, 50)
    with pytest.raises(DocumentFault, match="no text layer") as caught:
        read(pdf)
    assert caught.value.kind == ErrorClass.EMPTY


def test_an_encrypted_pdf_with_tables_is_read_when_its_user_needs_no_password() -> None:
    pdf = make_table()
    pdf.set_encryption(owner_password="owner", user_password="")
    assert "1999 | Old Mill | 12.5" in read(pdf).text


def test_a_page_that_cannot_be_loaded_is_counted_and_the_rest_is_read() -> None:
    content = make_pdf(["one", "two", "three"]).replace(b"\n5 0 R\n", b"\n0 0 R\n")
    extracted = extract_text(make_raw(content))
    assert extracted.text == "one\n\nthree"
    assert extracted.metadata["unreadable_pages"] == 1


def test_every_page_of_a_long_pdf_is_read_in_order() -> None:
    extracted = read(make_paragraphs(300))
    assert extracted.metadata["pages"] == 300
    assert [line.split(".")[0] for line in extracted.text.split("\n") if line[:5] == "Page "] == [
        f"Page {number + 1}" for number in range(300)
    ]


def test_the_start_of_each_page_is_kept_also_of_one_that_is_empty_or_cannot_be_read() -> None:
    content = make_pdf(["one", "", "three  \n\n\n\n  and", "four"]).replace(
        b"\n5 0 R\n", b"\n0 0 R\n"
    )
    extracted = extract_text(make_raw(content))
    starts = extracted.metadata["page_starts"]
    assert len(starts) == extracted.metadata["pages"] == 4
    assert starts == sorted(starts)
    assert extracted.text[starts[2] :].startswith("three")
    assert extracted.text[starts[3] :] == "four"
