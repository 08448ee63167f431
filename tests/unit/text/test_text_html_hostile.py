"""Pages made to break a parser cost little time and give what text they have."""

from collections.abc import Callable

import pytest

from penstock.documents import RawDocument
from penstock.text import html
from penstock.text.html import extract_page, read_page
from tests.unit.text.factories import PARAGRAPH, make_page, make_raw


def text_of(content: bytes | str) -> str:
    return extract_page(read_page(make_raw(content))).text


@pytest.mark.timeout(20)
@pytest.mark.parametrize("opened", ["<div>", "<span>", "<ul><li>x", "<table><tr><td>", "<b><p>"])
def test_a_page_nested_without_end_gives_all_its_text(opened: str) -> None:
    deep = opened * 100_000
    assert PARAGRAPH in text_of(f"<html><body>{deep}{PARAGRAPH}</body></html>")


def test_a_page_nested_deeper_than_most_is_read_to_its_end() -> None:
    # Without permission for more, the parser stops after 256 levels and drops the rest.
    body = "<div>" * 1000 + f"<p>{PARAGRAPH}</p>" + "</div>" * 1000 + "<p>The end.</p>"
    assert "The end." in text_of(make_page(body))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "rubbish",
    ["<p></p>", "<br>", "<div>", "<p>words <b>bold <i>", "<", "<!--", "</div>", "&amp;", "<x y='"],
)
def test_half_a_million_of_anything_are_read_in_seconds(rubbish: str) -> None:
    text_of(make_page(f"<p>{PARAGRAPH}</p>" + rubbish * (500_000 // len(rubbish.split("<")))))


def test_a_page_of_too_many_elements_gives_its_bare_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "TREE_ELEMENTS", 10)
    parts = "<script>var x</script><!-- note --><p>one &amp; <b>two</b></p>" + "<i></i>" * 20
    assert text_of(f"<html><body>{parts}<style>p {{}}") == "one &\ntwo"


def test_a_page_too_large_for_the_rules_gives_its_visible_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.text.html.CONTENT_ELEMENTS", 10)
    aside = "<aside>beside</aside>" * 20
    assert text_of(make_page(f"<article>{PARAGRAPH}</article>{aside}")).endswith("beside\nbeside")


def test_rules_that_fail_leave_the_visible_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr("trafilatura.bare_extraction", fail)
    assert text_of(make_page()) == PARAGRAPH


@pytest.mark.parametrize("content", [b"", b" \n", b"\x00", b"<!-- x", b"<", b"\xff\xfe", b"<?xml"])
def test_next_to_nothing_is_a_page_too(content: bytes) -> None:
    assert extract_page(read_page(make_raw(content))).title is None


def test_nuls_are_as_if_they_were_not_there() -> None:
    assert text_of(make_page(f"<p>{PARAGRAPH}</p>".replace("e", "e\0"))) == PARAGRAPH


@pytest.mark.parametrize(
    "encode",
    [
        lambda page: page.encode("utf-16"),
        lambda page: page.encode("utf-16-le"),
        lambda page: page.encode("utf-16-be"),
        lambda page: page.encode("utf-8-sig"),
        lambda page: page.encode("cp1252"),
    ],
)
def test_a_wrong_declaration_does_not_garble_a_page(encode: Callable[[str], bytes]) -> None:
    page = make_page(f"<p>{PARAGRAPH} Überlingen</p>")
    raw = RawDocument("page", encode(page), "text/html; charset=utf-8")
    assert "Überlingen" in extract_page(read_page(raw)).text
