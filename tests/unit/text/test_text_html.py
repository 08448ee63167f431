"""Pages give what they are about; pages about nothing in particular give all of it."""

from collections.abc import Iterator

import pytest

from penstock.text.html import extract_page, page_title, read_page, visible_text
from tests.unit.text.factories import PARAGRAPH, make_page, make_raw

MENU = "<ul>" + "".join(f"<li><a href='/{i}'>Mill {i}</a></li>" for i in range(20)) + "</ul>"


def text_of(body: str, head: str = "<title>Mills</title>") -> str:
    return extract_page(read_page(make_raw(make_page(body, head)))).text


def make_sentences(count: int) -> Iterator[str]:
    return (
        f"Mill number {i} stands on the river Ach and has {i + 2} wheels." for i in range(count)
    )


def make_article(*extra: str) -> str:
    paragraphs = "".join(f"<p>{sentence} {PARAGRAPH}</p>" for sentence in make_sentences(3))
    return f"<article><h1>On mills</h1>{paragraphs}{''.join(extra)}</article>"


def test_a_menu_beside_the_article_is_left_out() -> None:
    text = text_of(f"<div>{MENU}</div>{make_article()}")
    assert "number 2" in text
    assert "Mill 19" not in text


def test_text_after_an_empty_element_is_kept() -> None:
    assert "and turns" in text_of(make_article("<p>The wheel<b></b> and turns all day long.</p>"))


def test_rows_of_a_table_in_an_article_are_lines() -> None:
    rows = "<tr><th>Year</th><th>Wheels</th></tr><tr><td>1999</td><td>2 | 3</td></tr>"
    assert "Year | Wheels\n1999 | 2 | 3" in text_of(make_article(f"<table>{rows}</table>"))


def test_items_of_a_list_in_an_article_are_marked() -> None:
    extra = "<ol><li>Open the gate slowly</li><li>Wait for the wheel</li></ol><p>That is all.</p>"
    assert "- Open the gate slowly\n- Wait for the wheel" in text_of(make_article(extra))


def test_a_table_that_lays_out_a_page_keeps_its_paragraphs() -> None:
    paragraphs = "".join(f"<p>{sentence}</p>" for sentence in make_sentences(8))
    text = text_of(f"<table><tr><td>Mills</td><td><h1>On mills</h1>{paragraphs}</td></tr></table>")
    assert set(make_sentences(8)) <= set(text.split("\n"))


def test_comments_of_readers_do_not_make_an_article_a_list() -> None:
    comments = "".join(f"<div class='comment'><p>{s}</p></div>" for s in make_sentences(100))
    text = text_of(f"{make_article()}<div id='comments'>{comments}</div>")
    assert "number 2" in text
    assert "number 50" not in text


@pytest.mark.parametrize("container", ["main", "div"])
def test_a_list_of_links_gives_them_all(container: str) -> None:
    links = "".join(f"<li><a href='/{s}'>{s}</a></li>" for s in make_sentences(40))
    text = text_of(f"<{container}><p>{PARAGRAPH}</p><ul>{links}</ul></{container}>")
    assert [f"- {sentence}" for sentence in make_sentences(40)] == text.split("\n")[1:]


def test_a_product_gives_its_facts_beside_its_description() -> None:
    facts = "".join(f"<dt>Fact {i}</dt><dd>{s}</dd>" for i, s in enumerate(make_sentences(30)))
    text = text_of(f"<div><h1>Millstone</h1><p>{PARAGRAPH}</p></div><div><dl>{facts}</dl></div>")
    assert all(sentence in text for sentence in make_sentences(30))


def test_a_form_gives_its_labels() -> None:
    fields = "<fieldset><legend>You</legend><label>Name <input></label></fieldset>"
    assert text_of(f"<form>{fields}<button>Send</button></form>") == "You\nName"


def test_short_cells_stand_on_one_line_and_blocks_on_their_own() -> None:
    rows = "<tr><td><p>Flour</p></td><td>2<br>kg</td></tr><tr><td>Bran</td><td></td></tr>"
    assert visible_text(f"<table>{rows}</table>") == "Flour | 2 kg\nBran |"


def test_code_keeps_its_lines() -> None:
    assert visible_text("<pre>open()\n  wait()</pre><p>a\nb</p>") == "open()\nwait()\na b"


def test_text_after_what_is_not_read_is_kept() -> None:
    assert visible_text("<p>one<script>x()</script> two <nav>menu</nav>three</p>") == (
        "one two\nthree"
    )


def test_neighbouring_spans_are_words_of_their_own() -> None:
    assert visible_text("<span>Ulm</span><span>Full time</span>") == "Ulm Full time"


def test_a_page_that_is_all_frame_gives_the_frame() -> None:
    assert visible_text("<nav>Mills</nav><footer>Imprint</footer>") == "Mills\nImprint"


HIDDEN = (
    "<p hidden>Secret</p>",
    "<div style='display:none'><p>Secret</p></div>",
    "<div style='color: red; DISPLAY : none !important'>Secret</div>",
    "<span style='visibility:hidden'>Secret</span>",
)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_a_page_hides_is_not_visible(hidden: str) -> None:
    assert visible_text(f"<p>Jane</p>{hidden}<p>Miller</p>") == "Jane\nMiller"


@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_an_article_hides_is_not_its_content(hidden: str) -> None:
    text = text_of(make_article(f"{hidden}<p>{PARAGRAPH} The end.</p>"))
    assert "The end." in text
    assert "Secret" not in text


@pytest.mark.parametrize(
    "shown",
    [
        "<p aria-hidden='true'>Miller</p>",
        "<p hidden='until-found'>Miller</p>",
        "<p style='display:block; overflow:hidden'>Miller</p>",
        "<p class='hidden-xs'>Miller</p>",
    ],
)
def test_what_only_sounds_hidden_is_visible(shown: str) -> None:
    assert visible_text(f"<p>Jane</p>{shown}") == "Jane\nMiller"


@pytest.mark.parametrize(
    "page",
    [
        "<body style='visibility:hidden'><p>Jane</p></body>",
        "<html hidden><p>Jane</p></html>",
        "<div id='app' style='display:none'><p>Jane</p></div>",
    ],
)
def test_a_page_that_scripts_are_to_show_is_read_without_them(page: str) -> None:
    assert visible_text(page) == "Jane"


def test_reading_the_main_content_leaves_the_tree_as_it_was() -> None:
    script = '<script type="application/ld+json">{}</script>'
    page = read_page(make_raw(make_page(f"{MENU}{script}{make_article()}")))
    extract_page(page)
    assert len(page.tree.findall(".//li")) == 20
    assert page.tree.find(".//script") is not None


@pytest.mark.parametrize(
    ("head", "title"),
    [
        ("<title>Mills &amp; <b>more</title><meta property='og:title' content=' Mills '>", "Mills"),
        ("<title> Mills | Mills Ltd </title>", "Mills | Mills Ltd"),
        ("<title></title>", "On mills"),
    ],
)
def test_the_best_title_there_is_wins(head: str, title: str) -> None:
    assert page_title(read_page(make_raw(make_page("<h1>On <i>mills</i></h1>", head)))) == title


def test_a_page_without_any_title_has_none() -> None:
    assert page_title(read_page(make_raw("<p>words</p>"))) is None


def make_paragraphs(first: int, last: int) -> str:
    return "".join(f"<p>Number {n}. {PARAGRAPH}</p>" for n in range(first, last))


LINKS = "".join(f"<div><a href='/{n}'>Menu entry {n}</a></div>" for n in range(40))


@pytest.mark.parametrize(
    "container",
    [
        "<article class='body'>{}</article>",
        "<div class='entry-content'>{}</div>",
        "<section class='post-body'>{}</section>",
    ],
)
def test_a_body_in_several_containers_is_read_whole(container: str) -> None:
    parts = container.format(make_paragraphs(0, 4)) + container.format(make_paragraphs(4, 14))
    page = make_page(f"<div>{LINKS}</div><div>{parts}</div>")
    text = extract_page(read_page(make_raw(page))).text
    assert [f"Number {n}." in text for n in range(14)] == [True] * 14
    assert "Menu entry" not in text


def test_comments_below_a_body_are_not_read_as_a_part_of_it() -> None:
    comments = f"<div class='comment'>{make_paragraphs(4, 20)}</div>"
    body = f"<article class='body'>{make_paragraphs(0, 4)}</article>{comments}"
    text = extract_page(read_page(make_raw(make_page(body)))).text
    assert "Number 3." in text
    assert "Number 4." not in text


@pytest.mark.parametrize("name", ["comment-list", "sidebar share", "footer-x"])
def test_text_that_is_marked_as_something_else_is_read_without_the_menus(name: str) -> None:
    page = make_page(f"<div>{LINKS}</div><div class='{name}'>{make_paragraphs(0, 5)}</div>{LINKS}")
    text = extract_page(read_page(make_raw(page))).text
    assert [f"Number {n}." in text for n in range(5)] == [True] * 5
    assert "Menu entry" not in text


def test_a_page_of_links_is_read_with_its_links() -> None:
    text = extract_page(
        read_page(make_raw(make_page(f"<p>{PARAGRAPH}</p>{LINKS}{LINKS}{LINKS}")))
    ).text
    assert "Menu entry 39" in text
