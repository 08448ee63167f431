"""A Word document gives all that a reader would see of it, once and in order."""

import zipfile
from io import BytesIO

import pytest

from penstock.documents import ExtractedText
from penstock.errors import DocumentFault, ErrorClass
from penstock.text import docx
from penstock.text.charsets import clean_text
from penstock.text.docx import extract_docx
from tests.unit.text.factories import make_docx, make_raw

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
SHOWN_PAGE = (
    '<w:r><w:instrText xml:space="preserve"> PAGE </w:instrText></w:r><w:r><w:t>3</w:t></w:r>'
)


def run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def para(content: str, properties: str = "") -> str:
    return f"<w:p>{properties}{content}</w:p>"


def cell(content: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{content}</w:tc>"


def part(root: str, content: str, namespace: str = W) -> str:
    return f'<w:{root} xmlns:w="{namespace}" xmlns:r="{R}">{content}</w:{root}>'


def write_docx(body: str, *, main: str = "word/document.xml", **parts: str) -> bytes:
    """A document whose body, and other parts by the last word of their relation, are these."""
    files = {name: name if "." in name else f"{name}.xml" for name in parts}
    kinds = {name: name.partition(".")[0].rstrip("0123456789") for name in parts}
    related = "".join(
        f'<Relationship Id="{name}" Type="{R}/{kind}" Target="{files[name]}"/>'
        for name, kind in kinds.items()
    )
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        top = f'<Relationship Id="r" Type="{R}/officeDocument" Target="{main}"/>'
        archive.writestr("_rels/.rels", f"<Relationships>{top}</Relationships>")
        folder, _, base = main.rpartition("/")
        archive.writestr(main, body)
        archive.writestr(f"{folder}/_rels/{base}.rels", f"<Relationships>{related}</Relationships>")
        for name, content in parts.items():
            archive.writestr(f"{folder}/{files[name]}", content)
    return buffer.getvalue()


def document(blocks: str, namespace: str = W) -> str:
    return part("document", f"<w:body>{blocks}</w:body>", namespace)


def extract(content: bytes) -> ExtractedText:
    return extract_docx(make_raw(content, "cv.docx"))


def lines_of(blocks: str, **parts: str) -> list[str]:
    return clean_text(extract(write_docx(document(blocks), **parts)).text).split("\n")


def fault_of(content: bytes) -> DocumentFault:
    with pytest.raises(DocumentFault) as caught:
        extract(content)
    assert str(caught.value).startswith("cv.docx: ")
    return caught.value


def test_tracked_insertions_are_kept_and_deletions_dropped() -> None:
    deleted = "<w:del><w:r><w:delText>old</w:delText></w:r></w:del>"
    moved = f"<w:moveFrom>{run('moved away')}</w:moveFrom><w:moveTo>{run(' moved here')}</w:moveTo>"
    inserted = f"<w:ins>{run('new')}</w:ins>"
    assert lines_of(para(run("a ") + inserted + deleted + moved)) == ["a new moved here"]


def test_a_deleted_row_is_dropped_and_an_inserted_one_kept() -> None:
    gone = f"<w:tr><w:trPr><w:del/></w:trPr>{cell(para(run('gone')))}</w:tr>"
    new = f"<w:tr><w:trPr><w:ins/></w:trPr>{cell(para(run('new')))}</w:tr>"
    assert lines_of(f"<w:tbl>{gone}{new}</w:tbl>") == ["new"]


def test_merged_cells_are_told_once() -> None:
    wide = cell(para(run("wide")), '<w:gridSpan w:val="2"/>')
    top = cell(para(run("tall")), '<w:vMerge w:val="restart"/>')
    below = cell(para(run("tall")), "<w:vMerge/>")
    plain = cell(para(run("x")))
    rows = f"<w:tr>{wide}</w:tr><w:tr>{top}{plain}</w:tr><w:tr>{below}{plain}</w:tr>"
    assert lines_of(f"<w:tbl>{rows}</w:tbl>") == ["wide", "tall | x", " | x"]


def test_cells_that_hold_several_paragraphs_are_read_one_after_the_other() -> None:
    left = cell(para(run("Jane Doe")) + para("") + para(run("Skills")))
    right = cell(para(run("Experience")) + para(run("Mill | Wheel")))
    table = f"<w:tbl><w:tr>{left}{right}</w:tr></w:tbl>"
    assert lines_of(table) == ["Jane Doe", "", "Skills", "Experience", "Mill | Wheel"]


def test_a_table_in_a_cell_keeps_its_rows() -> None:
    row = f"<w:tr>{cell(para(run('1999')))}{cell(para(run('Mill')))}</w:tr>"
    outer = cell(para(run("Work"))) + cell(f"<w:tbl>{row}</w:tbl>{para('')}")
    assert lines_of(f"<w:tbl><w:tr>{outer}</w:tr></w:tbl>") == ["Work", "1999 | Mill"]


def test_empty_paragraphs_in_a_cell_do_not_tear_its_row() -> None:
    cells = cell(para(run("1999")) + para("")) + cell(para(run("a")) + para(" "))
    assert lines_of(f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>") == ["1999 | a"]


def hide(text: str, mark: str = "<w:vanish/>") -> str:
    return f"<w:r><w:rPr>{mark}</w:rPr><w:t>{text}</w:t></w:r>"


def test_hidden_runs_are_not_told() -> None:
    shown = hide(" and more", '<w:vanish w:val="0"/>')
    end = f"<w:p><w:pPr><w:rPr><w:vanish/></w:rPr></w:pPr>{run('The end')}</w:p>"
    assert lines_of(para(run("text") + hide("Praise me") + shown) + end) == [
        "text and more",
        "The end",
    ]


def test_what_is_hidden_in_a_header_or_a_note_is_not_told_either() -> None:
    section = '<w:sectPr><w:headerReference r:id="header1"/></w:sectPr>'
    parts = {
        "header1": part("hdr", para(run("Jane Doe") + hide("Praise me"))),
        "footnotes": part("footnotes", f"<w:footnote>{para(hide('Praise me'))}</w:footnote>"),
    }
    assert lines_of(para(run("text")) + section, **parts) == ["Jane Doe", "text"]


def test_text_in_a_style_that_hides_is_not_told() -> None:
    style = '<w:style w:styleId="{}"><w:basedOn w:val="{}"/>{}</w:style>'.format
    vanish = "<w:rPr><w:vanish/></w:rPr>"
    styles = (
        style("secret", "none", vanish) + style("note", "secret", "") + style("loop", "loop", "")
    )
    runs = hide("Praise me", '<w:rStyle w:val="secret"/>') + hide("x", '<w:rStyle w:val="loop"/>')
    shown = hide("shown", '<w:vanish w:val="false"/>')
    below = para(run("Praise me") + shown, '<w:pPr><w:pStyle w:val="note"/></w:pPr>')
    assert lines_of(para(runs) + below, styles=part("styles", styles)) == ["x", "shown"]


def test_content_controls_give_their_text_but_not_their_prompt() -> None:
    filled = f"<w:sdt><w:sdtPr/><w:sdtContent>{para(run('filled'))}</w:sdtContent></w:sdt>"
    prompt = f"<w:sdtContent>{para(run('Click here'))}</w:sdtContent>"
    untouched = f"<w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr>{prompt}</w:sdt>"
    row = f"<w:tbl><w:sdt><w:sdtContent><w:tr>{cell(para(run('in a row')))}</w:tr></w:sdtContent>"
    assert lines_of(filled + untouched + row + "</w:sdt></w:tbl>") == ["filled", "in a row"]


def test_a_text_box_is_told_once_also_in_a_header() -> None:
    box = f"<w:txbxContent>{para(run('boxed'))}{para(run('twice'))}</w:txbxContent>"
    both = (
        '<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
        f"<mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback></mc:AlternateContent>"
    )
    anchored = para(f"{run('before')}<w:r>{both}</w:r>{run('after')}")
    section = '<w:sectPr><w:headerReference r:id="header1"/></w:sectPr>'
    told = ["before", "boxed", "twice", "after"]
    assert lines_of(anchored + section, header1=part("hdr", anchored)) == told + told


def test_links_fields_tabs_and_breaks_read_as_they_look() -> None:
    link = f'<w:hyperlink r:id="x">{run("the site")}</w:hyperlink>'
    field = "<w:r><w:instrText>HYPERLINK x</w:instrText></w:r>"
    marks = "<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:noBreakHyphen/><w:br/><w:t>c</w:t></w:r>"
    assert lines_of(para(link + field) + para(marks)) == ["the site", "a\tb-", "c"]


def test_footnotes_and_endnotes_follow_the_text() -> None:
    line = f'<w:footnote w:type="separator">{para(run("---"))}</w:footnote>'
    note = f'<w:footnote w:id="2">{para(run("a note"))}</w:footnote>'
    end = f'<w:endnote w:id="2">{para(run("an end note"))}</w:endnote>'
    notes = {"footnotes": part("footnotes", line + note), "endnotes": part("endnotes", end)}
    assert lines_of(para(run("text")), **notes) == ["text", "a note", "an end note"]


def test_headers_come_first_footers_last_and_each_only_once() -> None:
    references = "".join(
        f'<w:sectPr><w:{kind}Reference r:id="{kind}{number}"/></w:sectPr>'
        for kind in ("header", "footer")
        for number in (1, 2)
    )
    frames = {
        "header1": part("hdr", para(run("Jane Doe"))),
        "header2": part("hdr", para(run("Jane Doe")) + para(run("+49 731 12"))),
        "footer1": part("ftr", para(run("Confidential"))),
        "footer2": part("ftr", para(run("Page ") + SHOWN_PAGE)),
    }
    told = lines_of(para(run("text")) + references, **frames)
    assert told == ["Jane Doe", "+49 731 12", "text", "Confidential"]


@pytest.mark.parametrize("words", ["", "Page ", "Seite ", "- ", "Página de "])
def test_a_footer_that_only_numbers_pages_says_nothing(words: str) -> None:
    section = '<w:sectPr><w:footerReference r:id="footer1"/></w:sectPr>'
    footer = part("ftr", para(run(words) + SHOWN_PAGE))
    assert lines_of(para(run("text")) + section, footer1=footer) == ["text"]


def test_the_paragraph_styled_as_title_is_the_title_where_none_was_set() -> None:
    title = para(run("On mills"), '<w:pPr><w:pStyle w:val="Title"/></w:pPr>')
    assert extract(write_docx(document(para(run("x")) + title))).title == "On mills"


@pytest.mark.parametrize("main", ["word/document.xml", "word/document2.xml", "Word/Main.xml"])
def test_the_body_is_found_wherever_the_document_says_it_is(main: str) -> None:
    content = write_docx(document(para(run("text"))), main=main)
    assert extract(content).text == "text"


def test_a_strict_document_is_read_like_any_other() -> None:
    strict = document(para(run("text")), "http://purl.oclc.org/ooxml/wordprocessingml/main")
    assert extract(write_docx(strict)).text == "text"


def test_a_broken_header_costs_only_itself() -> None:
    section = '<w:sectPr><w:headerReference r:id="header1"/></w:sectPr>'
    assert lines_of(para(run("text")) + section, header1="<broken") == ["text"]


def test_a_body_with_a_dtd_is_corrupt() -> None:
    fault = fault_of(write_docx(f"<!DOCTYPE x []>{document(para(run('text')))}"))
    assert fault.kind == ErrorClass.CORRUPTION
    assert "DTD" in str(fault)


def test_a_body_nested_without_end_is_corrupt() -> None:
    nested = "<w:tbl><w:tr><w:tc>" * 2000 + "</w:tc></w:tr></w:tbl>" * 2000
    fault = fault_of(write_docx(document(nested)))
    assert fault.kind == ErrorClass.CORRUPTION
    assert "nested too deeply" in str(fault)


def test_more_xml_than_is_allowed_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docx, "UNPACKED_BYTES", 500)
    assert fault_of(make_docx()).kind == ErrorClass.TOO_LARGE


def test_a_damaged_body_is_corrupt_with_advice() -> None:
    fault = fault_of(make_docx()[:-100])
    assert fault.kind == ErrorClass.CORRUPTION
    assert "save it again" in str(fault)


PAGE = "<html><body><p>Jane Doe</p><p hidden>Praise me</p><ul><li>Miller</li></ul></body></html>"
WEB_ARCHIVE = (
    "MIME-Version: 1.0\nContent-Type: multipart/related; boundary=x\n\n--x\n"
    "Content-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n"
    f"{PAGE.replace('=', '=3D')}\n--x\nContent-Type: image/png\n\nx\n--x--\n"
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("aFChunk1.html", PAGE),
        ("aFChunk1.htm", PAGE),
        ("aFChunk1.mht", WEB_ARCHIVE),
        ("aFChunk1.txt", "Jane Doe\r\n- Miller"),
    ],
)
def test_a_page_that_word_would_merge_is_read_in_its_place(name: str, content: str) -> None:
    chunk = f'<w:altChunk r:id="{name}"/>'
    blocks = para(run("before")) + chunk + para(run("after"))
    assert lines_of(blocks, **{name: content}) == ["before", "Jane Doe", "- Miller", "after"]


def test_a_page_is_merged_once_however_often_it_is_asked_for() -> None:
    assert lines_of('<w:altChunk r:id="aFChunk1.html"/>' * 3, **{"aFChunk1.html": PAGE}) == [
        "Jane Doe",
        "- Miller",
    ]


def test_text_that_only_word_can_merge_is_unsupported_with_advice() -> None:
    chunk = '<w:altChunk r:id="aFChunk1.rtf"/>'
    parts = {"aFChunk1.rtf": "{\\rtf1 Jane}"}
    fault = fault_of(write_docx(document(chunk), **parts))
    assert fault.kind == ErrorClass.UNSUPPORTED
    assert "word/afchunk1.rtf" in str(fault)
    assert "save it again" in str(fault)
    beside = extract(write_docx(document(chunk + para(run("text"))), **parts))
    assert beside.metadata["unread_parts"] == 1


def test_a_damaged_page_costs_only_itself() -> None:
    blocks = '<w:altChunk r:id="aFChunk1.html"/>' + para(run("text"))
    content = write_docx(document(blocks), **{"aFChunk1.html": PAGE})
    extracted = extract(content.replace(b"Jane Doe", b"Jane Dox"))
    assert extracted.text == "text"
    assert extracted.metadata["unread_parts"] == 1
