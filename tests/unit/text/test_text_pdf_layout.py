"""When a page gets a closer look, when its fast text stays, and where the looking ends."""

import random
from contextlib import closing
from io import BytesIO

import pypdfium2  # type: ignore[import-untyped]
import pytest
from pdfplumber.page import Page

from penstock.text.extract import extract_text
from penstock.text.pdf import document as document_module
from penstock.text.pdf import pages
from penstock.text.pdf.document import read_layout
from penstock.text.pdf.pages import PAGE_WEIGHT, FastPage, _reads_right_to_left, read_pages
from tests.unit.text.factories import make_raw
from tests.unit.text.pdf_factories import (
    draw_mesh,
    make_columns,
    make_drawing,
    make_lines,
    make_table,
    opened,
    read,
)


def refuse(*_: object) -> str:
    raise RecursionError("too deep")


def first_page(content: bytes) -> FastPage:
    with opened(content) as document:
        page = next(read_pages(document))
    assert page is not None
    return page


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_lines_written_in_another_order_are_read_from_the_top(seed: int | None) -> None:
    order = list(range(40))[::-1]
    if seed is not None:
        random.Random(seed).shuffle(order)
    expected = [f"line {number} of the page" for number in range(40)]
    assert read(make_lines(order)).text.split("\n") == expected


def test_columns_are_not_taken_for_disorder() -> None:
    extracted = read(make_columns())
    assert "layout_pages" not in extracted.metadata
    assert extracted.text.index("left line 39") < extracted.text.index("right line 0")


def test_when_the_closer_look_fails_the_fast_text_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Page, "find_tables", refuse)
    extracted = read(make_table())
    assert "1999 Old Mill 12.5" in extracted.text
    assert extracted.metadata["layout_pages"] == 1


def test_when_pdfplumber_cannot_open_it_the_fast_text_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pdfplumber.open", refuse)
    assert "1999 Old Mill 12.5" in read(make_table()).text


def test_one_failing_page_does_not_cost_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_first(page: Page, fast: FastPage) -> str | None:
        return refuse() if page.page_number == 1 else read_layout(page, fast)

    monkeypatch.setattr(document_module, "read_layout", fail_first)
    first, second = read(make_table(pages=2)).text.split("\n\n")
    assert "1999 Old Mill" in first
    assert "1999 | Old Mill" in second


def test_when_the_closer_look_loses_letters_the_fast_text_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(document_module, "_arrange", lambda *_: "Year | Mill | Flow")
    assert "|" not in read(make_table()).text


def test_pages_beyond_the_bounds_keep_their_fast_text_and_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(document_module, "LAYOUT_PAGES", 10)
    extracted = read(make_table(pages=12))
    assert extracted.metadata["layout_pages"] == 10
    assert extracted.metadata["layout_skipped_pages"] == 2
    assert extracted.text.count("1999 | Old Mill") == 10
    assert extracted.text.count("1999 Old Mill") == 2


def test_heavy_pages_use_up_the_bounds_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = first_page(bytes(make_table().output())).weight
    monkeypatch.setattr(document_module, "LAYOUT_WEIGHT", 3 * weight)
    assert read(make_table(pages=5)).metadata["layout_pages"] == 3


def test_a_slow_machine_stops_looking_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_module, "LAYOUT_SECONDS", -1)
    metadata = read(make_table(pages=2)).metadata
    assert "layout_pages" not in metadata
    assert metadata["layout_skipped_pages"] == 2


def test_graph_paper_is_too_much_for_a_closer_look() -> None:
    pdf = make_drawing()
    draw_mesh(pdf, 90, 80, step=2)
    pdf.text(20, 20, "x")
    assert not first_page(bytes(pdf.output())).wants_layout


def test_a_page_with_too_many_objects_gets_no_closer_look(monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(make_table().output())
    monkeypatch.setattr(pages, "PAGE_WEIGHT", 10)
    assert not first_page(content).wants_layout


def test_a_path_with_too_many_segments_gets_no_closer_look() -> None:
    backwards = range(39, -1, -1)
    assert first_page(bytes(make_lines(backwards).output())).wants_layout
    pdf = make_lines(backwards)
    pdf.polyline([(20 + number % 97, 20 + number % 89) for number in range(PAGE_WEIGHT)])
    assert not first_page(bytes(pdf.output())).wants_layout


def test_bold_made_by_printing_twice_is_read_once() -> None:
    pdf = make_drawing()
    draw_mesh(pdf, 2, 2, step=40)
    for place in range(4):
        for shift in (0, 0.1):
            pdf.text(22 + 40 * (place % 2) + shift, 70 + 40 * (place // 2), f"cell {place}")
    assert read(pdf).text == "cell 0 | cell 1\ncell 2 | cell 3"


@pytest.mark.parametrize("shift", [0.1, 0.35, 0.5])
def test_letters_printed_twice_for_bold_are_read_once(shift: float) -> None:
    pdf = make_drawing()
    for line in range(4):
        left = 20.0
        for letter in "Hello little penstock of the mill":
            pdf.text(left, 20 + 8 * line, letter)
            pdf.text(left + shift, 20 + 8 * line, letter)
            left += pdf.get_string_width(letter)
    assert read(pdf).text.split("\n") == 4 * ["Hello little penstock of the mill"]


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize("turn", [0, 90, 180, 270])
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_a_page_is_read_in_the_direction_of_its_text(turn: int, rotation: int, table: bool) -> None:
    pdf = make_drawing()
    with pdf.rotation(turn, x=105, y=148):
        if table:
            draw_mesh(pdf, 2, 2, step=40)
        for place in range(4):
            pdf.text(22 + 40 * (place % 2), 70 + 40 * (place // 2), f"cell {place}")
        for line in range(10):
            pdf.text(20, 150 + 8 * line, f"line {line} of the page")
    stream = BytesIO()
    with closing(pypdfium2.PdfDocument(bytes(pdf.output()))) as document:
        document[0].set_rotation(rotation)
        document.save(stream)
    words = extract_text(make_raw(stream.getvalue(), "mills.pdf")).text.replace("|", " ").split()
    cells = [word for place in range(4) for word in ("cell", str(place))]
    lines = [word for line in range(10) for word in f"line {line} of the page".split()]
    assert words == cells + lines


def test_text_from_right_to_left_stays_with_pdfium() -> None:
    assert _reads_right_to_left("שלום עולם")
    assert not _reads_right_to_left("peace on earth")
