"""Characters come out right from whatever bytes they were stored in."""

import pytest

from penstock.text.charsets import decode_text
from penstock.text.extract import extract_text
from tests.unit.text.factories import PARAGRAPH, make_page, make_raw

WORDS = "Résumé of José García – naïve café “quotes” in Zürich"


@pytest.mark.parametrize("charset", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_undeclared_text_is_decoded(charset: str) -> None:
    assert decode_text(WORDS.encode(charset)) == WORDS


def test_utf16_without_a_mark_is_decoded() -> None:
    assert decode_text(WORDS.encode("utf-16-le")) == WORDS
    assert decode_text(WORDS.encode("utf-16-be")) == WORDS


def test_latin_1_is_decoded() -> None:
    words = "Straße nach Köln, très déjà vu"
    assert decode_text(words.encode("latin-1")) == words


def test_russian_in_its_old_code_page_is_recognised() -> None:
    words = "Мельница стоит на реке и работает круглый год, зимой и летом. " * 3
    assert decode_text(words.encode("cp1251")) == words


def test_declared_charset_goes_before_the_meta_tag() -> None:
    page = '<meta charset="utf-8"><p>Žluťoučký kůň</p>'
    decoded = decode_text(page.encode("cp1250"), "text/html; charset=windows-1250", markup=True)
    assert decoded == page


def test_declared_latin_1_is_read_as_browsers_do() -> None:
    assert decode_text("“x” €".encode("cp1252"), "text/plain; charset=ISO-8859-1") == "“x” €"


def test_a_mark_goes_before_what_is_declared() -> None:
    assert decode_text(WORDS.encode("utf-16"), "text/plain; charset=latin-1") == WORDS


def test_a_charset_nobody_knows_does_not_spoil_utf8() -> None:
    assert decode_text("Résumé".encode(), "text/plain; charset=no-such") == "Résumé"


def test_meta_charset_of_a_page_is_honoured() -> None:
    page = make_page(f"<p>{PARAGRAPH} Ελληνικά</p>", '<meta charset="iso-8859-7">')
    assert "Ελληνικά" in extract_text(make_raw(page.encode("iso-8859-7"))).text


def test_old_style_meta_charset_is_honoured() -> None:
    meta = '<meta http-equiv="Content-Type" content="text/html; charset=shift_jis">'
    page = make_page(f"<p>{PARAGRAPH} 水車</p>", meta)
    assert "水車" in extract_text(make_raw(page.encode("shift_jis"))).text


def test_bytes_of_no_charset_become_replacement_characters() -> None:
    assert decode_text(b"ok \xff\xfe\xfd" * 3, "text/plain; charset=utf-8")


def test_a_declaration_that_does_not_fit_is_not_believed() -> None:
    assert decode_text((WORDS * 5).encode("cp1252"), "text/plain; charset=utf-8") == WORDS * 5


def test_a_stray_byte_does_not_spoil_a_page_in_utf8() -> None:
    assert decode_text(WORDS.encode() + b"\xff!", "text/html; charset=utf-8") == f"{WORDS}\ufffd!"


def test_a_stray_byte_does_not_spoil_a_declared_code_page() -> None:
    words = "Mlýn a řeka, žluťoučký kůň. " * 100
    content = words.encode("cp1250") + b"\x81"
    assert decode_text(content, "text/plain; charset=windows-1250") == f"{words}\ufffd"


def test_utf16_without_a_mark_is_told_in_spite_of_what_is_declared() -> None:
    page = make_page()
    assert decode_text(page.encode("utf-16-le"), "text/html; charset=utf-8", markup=True) == page
    assert decode_text(page.encode("utf-16-be"), "text/html; charset=utf-16") == page


def test_a_meta_tag_is_believed_when_nothing_else_is_declared() -> None:
    page = '<META http-equiv=Content-Type content="text/html; charset=windows-1251"><p>Мельница'
    assert decode_text(page.encode("cp1251"), "text/html", markup=True) == page


def test_the_word_charset_outside_a_meta_tag_declares_nothing() -> None:
    page = '<script charset="koi8-r"></script><p>“Mill”</p>'
    assert decode_text(page.encode(), markup=True) == page


def test_an_xml_declaration_counts_when_there_is_no_meta_tag() -> None:
    page = '<?xml version="1.0" encoding="iso-8859-2"?><html><p>Žďár</p></html>'
    assert decode_text(page.encode("iso-8859-2"), markup=True) == page


@pytest.mark.parametrize(
    ("label", "charset", "words"),
    [("gb2312", "gbk", "朱镕基"), ("euc-kr", "cp949", "똠방각하"), ("x-sjis", "cp932", "髙橋①")],
)
def test_old_labels_stand_for_the_charset_that_browsers_read(
    label: str, charset: str, words: str
) -> None:
    assert decode_text(words.encode(charset), f"text/html; charset='{label}'") == words


@pytest.mark.parametrize("label", ["rot13", "hex", "punycode", "unicode_escape", "utf-7", "\ud800"])
def test_a_label_that_is_no_charset_is_passed_over(label: str) -> None:
    assert decode_text(b"a\\x41+AGE-", f"text/plain; charset={label}") == "a\\x41+AGE-"
