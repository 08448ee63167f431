"""Tables of a PDF become rows of cells, in their place on the page."""

import pytest
from fpdf.drawing import PaintedPath

from penstock.text.extract import extract_text
from tests.unit.text.factories import PARAGRAPH, make_raw
from tests.unit.text.pdf_factories import (
    MILLS,
    draw_mesh,
    make_columns,
    make_drawing,
    make_table,
    read,
    turn_pages,
    wrap_in_form,
)

ROWS = ["Year | Mill | Flow", "1999 | Old Mill | 12.5", "2001 |  | 13.1"]


@pytest.mark.parametrize("borders", ["ALL", "INTERNAL"])
def test_a_ruled_table_stands_between_the_text_around_it(borders: str) -> None:
    rows = [*MILLS, ("2002", "Mill on the long river with words that wrap", "9")]
    extracted = read(make_table(rows, borders=borders))
    assert extracted.text.split("\n") == [
        "Before the table",
        *ROWS,
        "2002 | Mill on the long river with words that wrap | 9",
        "After the table",
    ]
    assert extracted.metadata["layout_pages"] == 1


def test_a_cell_that_spans_others_is_written_once() -> None:
    pdf = make_drawing()
    with pdf.table(num_heading_rows=2) as table:
        row = table.row()
        row.cell("Group", rowspan=2)
        row.cell("Totals", colspan=2)
        table.row(["left", "right"])
        table.row(["a", "b", "c"])
    assert read(pdf).text.split("\n") == ["Group | Totals |", " | left | right", "a | b | c"]


def test_a_grid_drawn_as_one_path_is_a_table() -> None:
    pdf = make_drawing()
    with pdf.drawing_context() as context:
        path = PaintedPath()
        path.style.fill_color = None
        path.style.stroke_color = "#000000"
        for y in (20, 30, 40):
            path.move_to(20, y).line_to(100, y)
        for x in (20, 60, 100):
            path.move_to(x, 20).line_to(x, 40)
        context.add_item(path)
    for number, word in enumerate(("one", "two", "three", "four")):
        pdf.text(22 + 40 * (number % 2), 27 + 10 * (number // 2), word)
    assert read(pdf).text == "one | two\nthree | four"


def test_a_table_inside_a_form_is_found() -> None:
    text = extract_text(make_raw(wrap_in_form(make_table()))).text
    assert text.split("\n") == ["Before the table", *ROWS, "After the table"]


def test_a_table_written_column_by_column_is_read_row_by_row() -> None:
    pdf = make_drawing()
    draw_mesh(pdf, 4, 3, step=20)
    for column in range(3):
        for row in range(4):
            pdf.text(22 + 20 * column, 72 + 20 * row, f"r{row}c{column}")
    assert read(pdf).text.split("\n")[0] == "r0c0 | r0c1 | r0c2"


def test_rows_of_numbers_without_rules_between_them_stay_apart() -> None:
    pdf = make_drawing()
    draw_mesh(pdf, 2, 3, step=40)
    for column, cells in enumerate(("Ulm Bonn Kiel", "1 2 3", "4 5 6")):
        for row, cell in enumerate(cells.split()):
            pdf.text(22 + 40 * column, 110 + 8 * row, cell)
        pdf.text(22 + 40 * column, 70, f"head {column}")
    assert read(pdf).text.split("\n") == [
        "head 0 | head 1 | head 2",
        "Ulm | 1 | 4",
        "Bonn | 2 | 5",
        "Kiel | 3 | 6",
    ]


def test_prose_in_the_cells_of_a_row_is_not_torn_into_lines() -> None:
    left, middle, right = PARAGRAPH.split(". ")
    text = read(make_table([("a", "b", "c"), (left, middle, right)])).text
    assert f"{left} | {middle} | {right}" in text


def test_a_name_broken_at_its_hyphen_in_a_cell_keeps_it() -> None:
    pdf = make_drawing()
    draw_mesh(pdf, 2, 2, step=30)
    cells = (("Smith-", "Jones"), ("Pen-", "stock"), ("a", ""), ("b", ""))
    for place, lines in enumerate(cells):
        for number, line in enumerate(lines):
            pdf.text(22 + 30 * (place % 2), 70 + 30 * (place // 2) + 6 * number, line)
    assert read(pdf).text.split("\n") == ["Smith-Jones | Penstock", "a | b"]


def test_a_table_on_a_turned_page_is_read_as_it_is_seen() -> None:
    pdf = make_drawing()
    with pdf.rotation(90, 105, 148):
        draw_mesh(pdf, 3, 3, step=30)
        for place in range(9):
            pdf.text(23 + 30 * (place % 3), 70 + 30 * (place // 3), f"cell {place}")
    text = extract_text(make_raw(turn_pages(pdf, 90))).text
    assert text.split("\n")[0] == "cell 0 | cell 1 | cell 2"


def test_a_table_on_a_page_upside_down_keeps_its_words() -> None:
    text = extract_text(make_raw(turn_pages(make_table(), 180))).text
    assert "Old Mill" in text


def test_the_lines_behind_a_chart_are_no_table() -> None:
    pdf = make_drawing()
    pdf.multi_cell(0, text=PARAGRAPH)
    draw_mesh(pdf, 5, 8)
    for column in range(8):
        pdf.text(20 + 10 * column, 116, str(2000 + column))
    assert "|" not in read(pdf).text


def test_a_few_rules_and_boxes_do_not_call_for_a_closer_look() -> None:
    pdf = make_drawing()
    pdf.multi_cell(0, text=PARAGRAPH)
    for y in (10, 60, 70, 280):
        pdf.line(10, y, 200, y)
    pdf.rect(30, 100, 60, 40)
    pdf.rect(30, 160, 60, 40)
    assert "layout_pages" not in read(pdf).metadata


def test_a_table_in_a_page_of_two_columns_leaves_the_columns_apart() -> None:
    pdf = make_columns()
    pdf.set_y(262)
    with pdf.table(width=80, align="L") as table:
        for row in MILLS[:2]:
            table.row(row)
    lines = read(pdf).text.split("\n")
    assert lines.index("left line 39 of the page") < lines.index("right line 0 of the page")
    assert lines[-2:] == ROWS[:2]
