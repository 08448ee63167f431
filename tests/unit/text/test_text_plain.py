"""Plain formats are readable as they stand, data formats become readable, and nothing is lost."""

import json
from types import SimpleNamespace

import pytest

from penstock.errors import DocumentFault, ErrorClass
from penstock.text.plain import (
    describe_syntax_error,
    extract_csv,
    extract_json,
    extract_markdown,
    extract_plain,
    extract_rst,
    extract_xml,
)
from tests.unit.text.factories import make_raw


def csv_text(content: bytes | str) -> str:
    return extract_csv(make_raw(content)).text


def xml_text(content: bytes | str) -> str:
    return extract_xml(make_raw(content)).text


def json_text(content: bytes | str) -> str:
    return extract_json(make_raw(content)).text


def test_plain_text_stays_as_it_is() -> None:
    assert extract_plain(make_raw("a\n\n b")).text == "a\n\n b"


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("---\nlang: de\ntitle: On mills\n---\n# Another\n", "On mills"),
        ('---\ntitle: "On: mills"\n---\n', "On: mills"),
        ("---\ntitle: >-\n  On mills\n---\n", "On mills"),
        ('+++\ntitle = "On mills"\n+++\n', "On mills"),
        ("---\nlang: de\n---\n# On mills\n", "On mills"),
        ("```sh\n# no title\n```\n# On mills ##\n", "On mills"),
        ("On mills\n========\n", "On mills"),
        ("- a list\n\nand prose", None),
        ("---\nnever closed", None),
    ],
)
def test_markdown_takes_its_title_from_front_matter_or_heading(
    source: str, title: str | None
) -> None:
    extracted = extract_markdown(make_raw(source))
    assert (extracted.title, extracted.text) == (title, source)


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("On mills\n--------\n", "On mills"),
        ("========\n On mills\n========\n", "On mills"),
        (".. note:: wet\n\nOn mills\n~~~~~~~~\n", "On mills"),
        ("=====  =====\nA      B\n=====  =====\n", None),
        ("just prose", None),
    ],
)
def test_rst_takes_its_title_from_the_first_heading(source: str, title: str | None) -> None:
    assert extract_rst(make_raw(source)).title == title


@pytest.mark.parametrize("heading", [f"# {'#' * 400_000} x", f"# {' ' * 400_000}x"])
def test_a_line_without_end_is_no_title(heading: str) -> None:
    assert extract_markdown(make_raw(heading)).title is None


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(delimiter: str) -> None:
    rows = [["name", "note"], ["Old Mill", "wet, cold; dark"], ["New Mill", "dry"]]
    source = "\n".join(delimiter.join(f'"{cell}"' for cell in row) for row in rows)
    extracted = extract_csv(make_raw("\ufeff" + source))
    assert extracted.text == "name | note\nOld Mill | wet, cold; dark\nNew Mill | dry"
    assert extracted.metadata == {"rows": 3, "columns": ["name", "note"]}


def test_a_quoted_cell_may_span_lines() -> None:
    assert csv_text('a,b\n"one\ntwo","say ""hi"""\n') == 'a | b\none two | say "hi"'


def test_a_first_row_of_numbers_is_no_header() -> None:
    assert extract_csv(make_raw("1,2\n3,4")).metadata["columns"] == []


@pytest.mark.parametrize(
    "source",
    [
        'a,b\n"never closed,1\nsecond,2\nthird,3',
        'a,b\n"odd" end,1\nsecond,2\nthird,3',
        f"a,b\n{'x' * 200_000},1\nsecond,2\nthird,3",
    ],
)
def test_a_broken_dialect_loses_no_line(source: str) -> None:
    lines = csv_text(source).split("\n")
    assert len(lines) == 4
    assert lines[2:] == ["second | 2", "third | 3"]


def test_one_column_of_words_stays_as_it_is() -> None:
    assert csv_text("name\nOld Mill\nNew Mill") == "name\nOld Mill\nNew Mill"


def test_json_lines_are_records_with_a_blank_line_between() -> None:
    assert json_text('{"a": 1}\n{"a": {"b": [2]}}\n') == "a: 1\n\na:\n  b:\n    - 2"


def test_a_broken_line_among_json_lines_stays_as_it_stands() -> None:
    assert json_text('{"a": 1}\n{"a": 2}\n{"a": ') == 'a: 1\n\na: 2\n\n{"a": '


def test_html_inside_json_is_read_like_a_page() -> None:
    value = {"title": "Miller", "content": "&lt;p&gt;Grind &lt;b&gt;corn&lt;/b&gt;.&lt;/p&gt;"}
    extracted = extract_json(make_raw(json.dumps(value)))
    assert extracted.text == "title: Miller\ncontent: Grind corn."
    assert extracted.title == "Miller"


def test_a_comparison_is_no_html() -> None:
    assert json_text('["a < b and List<int> > c"]') == "- a < b and List<int> > c"


def test_deep_json_is_indented_only_so_far() -> None:
    deep = '{"a":' * 300 + "1" + "}" * 300
    assert max(map(len, json_text(deep).split("\n"))) < 40


def test_xml_is_read_in_document_order() -> None:
    assert xml_text("<a><b>one<i>two</i></b> three</a>") == "one\ntwo\nthree"


def test_a_sentence_with_elements_in_it_stays_one_line() -> None:
    source = "<doc><p>The <em>old</em> mill&nbsp;in <town>Ulm</town>.</p><p>Next</p></doc>"
    assert xml_text(source) == "The old mill\xa0in Ulm.\nNext"


def test_namespaces_comments_and_cdata_do_not_matter() -> None:
    source = '<m xmlns="urn:m"><!-- no --><n>one</n><?pi no?><x:o xmlns:x="urn:x"><![CDATA[a < b]]>'
    assert xml_text(source + "</x:o></m>") == "one\na < b"


def test_a_feed_gives_titles_and_readable_descriptions() -> None:
    item = "<item><title>Wheel</title><description>&lt;p&gt;It &lt;b&gt;turns&lt;/b&gt;.&lt;/p&gt;"
    source = f"<rss><channel><title>Mills</title>{item}</description></item></channel></rss>"
    extracted = extract_xml(make_raw(source))
    assert extracted.text == "Mills\nWheel\nIt turns."
    assert extracted.title == "Mills"


def test_xml_with_nothing_but_attributes_gives_those() -> None:
    assert xml_text('<mills><mill name="Old" town="Ulm"/></mills>') == "mill name: Old, town: Ulm"


def test_the_encoding_declared_inside_counts_where_the_type_names_none() -> None:
    source = '<?xml version="1.0" encoding="ISO-8859-2"?><a>Žďár</a>'.encode("iso-8859-2")
    assert extract_xml(make_raw(source, "a.xml", "application/xml")).text == "Žďár"


def test_xml_beyond_the_limits_is_cut_and_says_so() -> None:
    extracted = extract_xml(make_raw("<a>x" * 1000 + "</a>" * 1000))
    assert extracted.metadata == {"truncated": True}
    assert extracted.text.startswith("x")


def test_xml_whose_text_lies_too_deep_is_corrupt() -> None:
    with pytest.raises(DocumentFault, match="nested too deeply") as caught:
        xml_text("<a>" * 1000 + "x" + "</a>" * 1000)
    assert caught.value.kind == ErrorClass.CORRUPTION


def test_a_parser_out_of_memory_does_not_blame_the_document() -> None:
    with pytest.raises(MemoryError):
        describe_syntax_error(SimpleNamespace(code=2, msg="unknown error"))
