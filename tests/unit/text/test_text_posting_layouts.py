"""A posting's body is found under any markup, also on a page whose address says nothing of jobs."""

import html
import json
from collections.abc import Sequence

import pytest

from penstock.text.extract import extract_web_page
from tests.unit.text.factories import make_page, make_raw
from tests.unit.text.test_text_posting_platforms import (
    BENEFITS,
    EEO,
    INTRO,
    MUST,
    TASKS,
    TEAM,
    TITLE,
    items,
    linked_data,
    score,
)

WANTED = (INTRO, TEAM, "What you’ll do", *TASKS, "What you’ll bring", *MUST)
HEAD = f"<title>{TITLE} | Weirwood</title>"
MENU = "<div>" + "".join(f"<a href='/{n}'>Section {n}</a>" for n in range(12)) + "</div>"
FOOT = (
    "<div class='foot'><p>Weirwood AG, Kornplatz 3, 7000 Chur. Copyright 2024. This site uses "
    "cookies to remember what you looked at last time.</p></div>"
)


def tell(heading: str = "<h3>{}</h3>", paragraph: str = "<p>{}</p>", bullet: str = "") -> str:
    def list_of(lines: Sequence[str]) -> str:
        return "".join(bullet.format(line) for line in lines) if bullet else items(lines)

    return "".join(
        (
            *(paragraph.format(INTRO), paragraph.format(TEAM)),
            *(heading.format("What you’ll do"), list_of(TASKS)),
            *(heading.format("What you’ll bring"), list_of(MUST)),
            *(heading.format("What we offer"), paragraph.format(BENEFITS)),
            *(heading.format("Equal opportunity"), paragraph.format(EEO)),
        )
    )


BODY = f"<h1>{TITLE}</h1>{tell()}"
HALF = BODY.index("<h3>What you’ll bring")
NODES = [
    {"type": "paragraph", "content": [{"type": "text", "text": f"{INTRO} {TEAM}"}]},
    {"type": "heading", "content": [{"type": "text", "text": "What you’ll do"}]},
    *({"type": "listItem", "content": [{"type": "text", "text": task}]} for task in TASKS),
    {"type": "heading", "content": [{"type": "text", "text": "What you’ll bring"}]},
    *({"type": "listItem", "content": [{"type": "text", "text": one}]} for one in MUST),
]
STATE = json.dumps({"job": {"id": 81734, "title": TITLE, "body": tell()}})
SCRIPTED = f"(function(a,b){{return {{job:{{nom:{json.dumps(TITLE)},texte:a,ouvert:b}}}}}}"
ESCAPES = {"&": "&a;", '"': "&q;", "<": "&l;", ">": "&g;"}
TABS = "".join(
    f"<a href='#{name}'>{label}</a>"
    for name, label in (("a", "What you’ll do"), ("b", "What you’ll bring"), ("c", "Benefits"))
)
LAYOUTS = {
    "streamed": f"<div id='S:0' hidden>{BODY}</div><script>$RC('B:0','S:0')</script>",
    "streamed in parts": f"<div hidden id='S:0'>{BODY[:HALF]}</div>{FOOT}"
    f"<div hidden id='S:1'>{BODY[HALF:]}</div>",
    "shadow tree": f"<x-job><template shadowrootmode='open'>{BODY}</template></x-job>",
    "script template": f"<script type='text/x-template'><div>{BODY}</div></script>",
    "noscript": f"<noscript>{BODY}</noscript>",
    "frame": f'<h1>{TITLE}</h1><iframe srcdoc="{html.escape(tell())}"></iframe>',
    "attribute": f'<job-page :state="{html.escape(STATE)}"></job-page>',
    "Angular state": "<script type='application/json'>"
    + "".join(ESCAPES.get(char, char) for char in STATE)
    + "</script>",
    "script's object": f"<script>window.__NUXT__={SCRIPTED}({json.dumps(tell())},!0));</script>",
    "editor's nodes": f"<script>var job = {json.dumps({'name': TITLE, 'doc': NODES})};</script>",
    "preformatted": f"<pre>{TITLE}\n\n{INTRO}\n\n{TEAM}\n\nRESPONSIBILITIES\n* "
    + "\n* ".join(TASKS)
    + "\n\nREQUIREMENTS\n* "
    + "\n* ".join(MUST)
    + f"\n\nBENEFITS\n{BENEFITS}\n\n{EEO}</pre>",
    "plain elements": f"<div>{TITLE}</div>"
    + tell("<div class=h>{}</div>", "<div class=t>{}</div>", "<div><i>•</i> <i>{}</i></div>"),
    "plain paragraphs": f"<h1>{TITLE}</h1>" + tell("<p>{}</p>"),
    "line breaks": f"<h1>{TITLE}</h1><div>"
    + tell("<b>{}</b><br>", "{}<br><br>", "- {}<br>")
    + "</div>",
    "tabs": f"<h1>{TITLE}</h1><p>{INTRO}</p><p>{TEAM}</p><div>{TABS}</div>"
    f"<div id='a'>{items(TASKS)}</div><div id='b'>{items(MUST)}</div>"
    f"<div id='c'><p>{BENEFITS}</p></div>",
    "beside a blog": f"<div>{BODY}</div><div><h3>Recent posts</h3><ul>"
    + "".join(f"<li><a href='/{n}'>Post number {n} about rivers</a></li>" for n in range(6))
    + "</ul></div>",
    "above other jobs": f"{BODY}<h2>More openings at Weirwood</h2>"
    + "<h3>Miller</h3><p>Chur. We look for one who likes mud and the smell of concrete.</p>" * 3,
    "teaser in linked data": linked_data(f"{INTRO[:120]}…") + BODY,
    "RDFa": f"<div typeof='JobPosting'><h1 property='title'>{TITLE}</h1>"
    f"<div property='description'>{tell()}</div></div>",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_posting_is_found_under_any_markup(layout: str) -> None:
    page = make_page(MENU + LAYOUTS[layout] + FOOT, HEAD)
    extracted = extract_web_page(make_raw(page, "https://weirwood.example/?p=81734"))
    assert extracted.title == TITLE
    found = f"{extracted.metadata['description']}\n{extracted.metadata['requirements']}"
    assert score(found, WANTED) > 0.95
    assert "Copyright" not in extracted.text


@pytest.mark.parametrize(
    ("tasks", "demands", "offers"),
    [
        ("Das erwartet dich", "Das solltest du mitbringen", "Das darfst du erwarten"),
        ("Vos missions", "Votre profil", "Ce que nous vous proposons"),
        ("O que você vai fazer", "O que esperamos de você", "Benefícios"),
        ("Wat ga je doen?", "Wat breng je mee?", "Wat bieden wij?"),
        ("Twoje zadania", "Nasze wymagania", "Oferujemy"),
        ("Arbetsuppgifter", "Kvalifikationer", "Vi erbjuder"),
        ("仕事内容", "応募資格", "待遇"),
        ("Αρμοδιότητες", "Προσόντα", "Παροχές"),
    ],
)
def test_the_parts_of_a_posting_are_told_apart_in_any_language(
    tasks: str, demands: str, offers: str
) -> None:
    body = (
        f"<h1>{TITLE}</h1><p>{INTRO}</p><p>{TEAM}</p><h3>{tasks}</h3>{items(TASKS)}"
        f"<h3>{demands}</h3>{items(MUST)}<h3>{offers}</h3>{items([BENEFITS, PAY_NOTE])}"
    )
    page = make_page(MENU + body + FOOT, HEAD)
    metadata = extract_web_page(make_raw(page, "https://weirwood.example/jobs/81734")).metadata
    assert score(metadata["description"], (INTRO, TEAM, tasks, *TASKS)) > 0.95
    assert score(metadata["requirements"], (demands, *MUST)) > 0.95


PAY_NOTE = "Fourteen monthly salaries, and a boat to get to work in"


@pytest.mark.parametrize("heading", ["About us", "Our benefits", "How we hire", "Legal notice"])
def test_what_is_not_the_job_is_no_part_of_its_description(heading: str) -> None:
    body = BODY.replace("What we offer", heading)
    metadata = extract_web_page(
        make_raw(make_page(body, HEAD), "https://weirwood.example/jobs/81734")
    ).metadata
    assert BENEFITS not in metadata["description"] + metadata["requirements"]
    assert EEO not in metadata["description"] + metadata["requirements"]
