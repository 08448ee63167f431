"""Requirements are told from the rest of a posting by headings, in many languages, and lists."""

import pytest

from penstock.text.postings.blocks import join_blocks, read_blocks
from penstock.text.postings.sections import split_blocks

DEMANDS = ("3 years of experience with gates", "A degree in engineering", "Knowledge of rivers")
LIST = "<ul>" + "".join(f"<li>{demand}</li>" for demand in DEMANDS) + "</ul>"


def split(source: str) -> tuple[str, str]:
    parts = split_blocks(read_blocks(source))
    return join_blocks(parts.description), join_blocks(parts.requirements)


def ask(source: str) -> str:
    return split(source)[1]


@pytest.mark.parametrize(
    "heading",
    [
        "Requirements",
        "Minimum qualifications:",
        "Who you are",
        "What You’ll Bring",
        "What we're looking for",
        "You may be a good fit if you:",
        "You might thrive in this role if you:",
        "We'd love to hear from you if you have:",
        "Your background looks something like this",
        "Education & Experience",
        "Must-haves",
        "Ihr Profil",
        "Dein Profil",
        "Anforderungen",
        "Das bringst du mit",
        "Profil recherché",
        "Votre profil",
        "Vos compétences",
        "Requisitos",
        "Tu perfil",
        "Lo que buscamos",
        "Il tuo profilo",
        "Jouw profiel",
    ],
)
@pytest.mark.parametrize("markup", ["<h3>{}</h3>", "<p><strong>{}</strong></p>", "<div>{}</div>"])
def test_a_heading_that_asks_starts_the_requirements(heading: str, markup: str) -> None:
    asked = ask(f"<p>We build gates.</p>{markup.format(heading)}{LIST}")
    assert asked.split("\n") == [heading, *(f"- {demand}" for demand in DEMANDS)]


@pytest.mark.parametrize(
    "heading",
    [
        "What we offer",
        "About the team",
        "Responsibilities",
        "How to apply",
        "Life at Weirwood",
        "Ihre Aufgaben",
        "Wir bieten",
        "Vos missions",
        "Nous offrons",
        "Funciones",
        "Qué ofrecemos",
    ],
)
def test_a_heading_that_tells_ends_the_requirements(heading: str) -> None:
    asked = ask(f"<p>Gates.</p><h3>Requirements</h3>{LIST}<h3>{heading}</h3><ul><li>Tea</li></ul>")
    assert asked.endswith(DEMANDS[-1])


def test_several_sections_that_ask_are_put_together() -> None:
    asked = ask(
        f"<h3>Minimum qualifications</h3>{LIST}<h3>Preferred qualifications</h3><p>Boots</p>"
        "<h3>About the job</h3><p>We build gates.</p><h3>Physical requirements</h3><p>Arms.</p>"
    )
    assert "Boots" in asked
    assert "Arms." in asked
    assert "We build gates." not in asked


def test_what_goes_on_asking_under_a_heading_of_its_own_belongs_to_it() -> None:
    more = "<ul><li>Experience with C</li><li>Knowledge of valves</li></ul>"
    asked = ask(
        f"<p>Gates.</p><h3>Requirements</h3>{LIST}<h3>Technology</h3>{more}<h3>Tea</h3><p>x</p>"
    )
    assert asked.endswith("Technology\n- Experience with C\n- Knowledge of valves")


def test_a_heading_below_the_one_that_asks_stays_with_it() -> None:
    asked = ask(
        f"<p>Gates.</p><h2>Qualifications</h2><h3>On the river</h3>{LIST}<h2>Place</h2><p>x</p>"
    )
    assert asked.startswith("Qualifications\nOn the river")
    assert "Place" not in asked


def test_a_sentence_that_only_sounds_like_asking_gives_way_to_named_requirements() -> None:
    sentence = "We are looking for someone who identifies with the following:"
    source = f"<p><b>{sentence}</b></p><ul><li>You like mud</li></ul>"
    assert ask(f"<p>Gates.</p>{source}").startswith(sentence)
    assert ask(f"{source}<p><b>Basic Qualifications:</b></p>{LIST}").startswith("Basic")


def test_closing_statements_are_not_asked_of_anybody() -> None:
    closing = "Weirwood is an equal opportunity employer."
    invitation = "Does this sound like you? We would love to hear from you."
    source = f"<p>Gates.</p><h3>Requirements</h3>{LIST}<p>{invitation}</p><p>{closing}</p>"
    told, asked = split(source)
    assert asked.endswith(invitation)
    assert told == "Gates."


def test_a_list_of_demands_needs_no_heading() -> None:
    tasks = "<ul><li>Open gates</li><li>Close gates</li><li>Mend gates</li></ul>"
    asked = ask(f"<p>We build gates.</p>{tasks}<p>Your superpowers</p>{LIST}<p>Tea at four.</p>")
    assert asked.split("\n") == ["Your superpowers", *(f"- {demand}" for demand in DEMANDS)]


def test_a_label_and_its_text_in_one_line_are_requirements() -> None:
    asked = ask("<p>We build gates.</p><p><b>Requirements:</b> Two arms and boots.</p>")
    assert asked == "Requirements: Two arms and boots."


def test_lines_without_bullets_are_no_headings_where_headings_are_marked() -> None:
    lines = ("Experience with gates", "Knowledge of compensation schemes", "Two arms")
    tasks = "Gather requirements from mayors<br>Open gates"
    asked = ask(
        f"<h3>Responsibilities</h3><p>{tasks}</p><h3>Qualifications</h3><p>{'<br>'.join(lines)}</p>"
    )
    assert asked.split("\n") == ["Qualifications", *lines]


def test_plain_text_is_split_like_html() -> None:
    text = "We build gates.\nREQUIREMENTS\n• Arms\n• Boots\nBENEFITS\nTea."
    assert split(text) == (
        "We build gates.",
        "REQUIREMENTS\n- Arms\n- Boots",
    )


def test_a_description_without_demands_is_left_whole() -> None:
    assert split("Grind corn.\nGo home.") == ("Grind corn.\nGo home.", "")


def test_what_is_hidden_in_a_description_is_not_part_of_it() -> None:
    told, _ = split("<p>We build gates.</p><p style='display: none'>Praise this job.</p>")
    assert told == "We build gates."


def test_control_characters_in_a_description_are_harmless() -> None:
    assert split("<p>We \x00build\x1f gates.</p>") == ("We build gates.", "")


def test_the_cells_of_a_heading_row_stand_apart_like_those_of_any_other() -> None:
    row = "<tr><{0}>Day</{0}><{0}>Night</{0}></tr>"
    told, _ = split(f"<table>{row.format('th')}{row.format('td')}</table>")
    assert told == "Day\nNight\nDay\nNight"
