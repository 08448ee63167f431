"""One job, on pages built as the sites of many employers build theirs."""

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from penstock.text.extract import extract_web_page
from tests.unit.text.factories import make_page, make_raw

TITLE = "Senior Sluice Engineer, Headworks"
INTRO = (
    "Weirwood builds the gates and the software that keep rivers in their beds. Four hundred towns "
    "sleep better because our sluices open in time, and we would like it to be four thousand."
)
TEAM = (
    "The Headworks team designs intake structures, writes their controllers, and stands in the mud "
    "when they are opened for the first time. You will report to the head of hydraulics."
)
TASKS = (
    "Design intake gates for mountain rivers and see them through to commissioning",
    "Write and test control software for gates that nobody can reach in winter",
    "Explain to mayors in plain words why their valley floods",
)
MUST = (
    "5+ years of experience in hydraulic engineering or a related field",
    "Bachelor's degree in civil or mechanical engineering, or equivalent practical experience",
    "Proficiency in Python or another programming language used for control systems",
    "Ability to work outdoors for several days at a time",
)
NICE = (
    "Experience with sediment models and physical scale tests",
    "Knowledge of Italian or Romansh, spoken and written",
)
BENEFITS = (
    "We give you thirty days of leave, a pair of waders, and a workshop in which everything may be "
    "borrowed over the weekend. Families are welcome at the summer camp by the lake."
)
EEO = (
    "Weirwood is an equal opportunity employer and does not discriminate on the basis of race, "
    "religion, gender, age, disability or veteran status. Accommodations are made on request."
)
PAY = "The base salary range for this position is $120,000 - $150,000 per year."
OTHERS = ("Junior Miller", "Head of Turbines")
FOOTER = "<footer><p>Privacy policy. Terms. Sitemap. Follow us on the river.</p></footer>"
NAVIGATION = (
    "<nav><ul><li><a href='/'>Home</a></li><li><a href='/jobs'>All jobs</a></li></ul></nav>"
)


@dataclass(frozen=True)
class Fixture:
    """A page, and what a person would mark on it."""

    source: str
    told: Sequence[str]
    asked: Sequence[str]
    address: str = "https://weirwood.example/jobs/81734"


def score(found: str, expected: Sequence[str]) -> float:
    left, right = (
        Counter(re.findall(r"\w+", text.lower())) for text in (found, " ".join(expected))
    )
    return 2 * (left & right).total() / (left.total() + right.total())


def items(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>"


def rich_text(heading: str = "<h3>{}</h3>") -> str:
    """The body as most editors store it, with the kind of heading the platform's editor has."""
    return (
        f"<p>{INTRO}</p>{heading.format('About the team')}<p>{TEAM}</p>"
        f"{heading.format('What you’ll do')}{items(TASKS)}"
        f"{heading.format('What you’ll bring')}{items(MUST)}"
        f"{heading.format('Nice to have')}{items(NICE)}"
        f"{heading.format('What we offer')}<p>{BENEFITS}</p>"
    )


RICH_TOLD = ("About the team", "What you’ll do", INTRO, TEAM, *TASKS)
RICH_ASKED = ("What you’ll bring", *MUST, "Nice to have", *NICE)


def shell(script: str, title: str = f"{TITLE} | Weirwood Careers") -> str:
    """A page whose content is made by its scripts."""
    head = f"<title>{title}</title>"
    return make_page(f"{NAVIGATION}<div id='root'></div>{script}{FOOTER}", head)


def linked_data(description: str, **more: Any) -> str:
    posting = {"@type": "JobPosting", "title": TITLE, "description": description, **more}
    return f'<script type="application/ld+json">{json.dumps(posting)}</script>'


def job_with_platform_blocks() -> Fixture:
    """Escaped HTML in linked data; the platform adds pay and statements in elements of its own."""
    body = (
        f"<div class='content-intro'><p>{INTRO}</p></div><p>{TEAM}</p>"
        f"<p><strong>You will:</strong></p>{items(TASKS)}"
        f"<p><strong>You have:</strong></p>{items(MUST)}"
        f"<p><strong>Nice to have:</strong></p>{items(NICE)}"
        f"<div class='pay'><div class='note'><p>{PAY}</p></div><div>Annual salary range</div></div>"
        f"<div class='conclusion'><p>{EEO}</p></div>"
    )
    source = shell(linked_data(html.escape(body)))
    return Fixture(source, [INTRO, TEAM, "You will", *TASKS], ["You have", *MUST, "Nice", *NICE])


def job_in_router_context() -> Fixture:
    job = {"id": 81734, "title": TITLE, "content": rich_text(), "company_name": "Weirwood"}
    job["job_post_location"] = "Chur"
    others = [{"id": n, "title": other, "content": rich_text()} for n, other in enumerate(OTHERS)]
    context = {"state": {"loaderData": {"routes/job": {"jobPost": job, "others": others}}}}
    script = f"<script>window.__remixContext = {json.dumps(context)};</script>"
    return Fixture(shell(script), RICH_TOLD, RICH_ASKED)


def job_in_divs_with_classes() -> Fixture:
    """Server-rendered sections, lists whose headings are h3, and a closing section."""
    section = "<div class='section page-centered'><div>{}</div></div>".format
    body = (
        f"<div class='main-header page-centered'><a href='/'>Weirwood home</a></div>"
        f"<div class='posting-headline'><h2>{TITLE}</h2><div class='posting-categories'>"
        "<div class='sort-by-location'>Chur</div><div>Full-time</div></div></div>"
        + section(f"{INTRO}</div><div><br></div><div>{TEAM}")
        + section(f"<h3>What you will do</h3>{items(TASKS)}")
        + section(f"<h3>Requirements</h3>{items(MUST)}")
        + section(f"<h3>Bonus points</h3>{items(NICE)}")
        + section(EEO)
        + "<div><a class='postings-btn' href='/apply'>Apply for this job</a></div>"
    )
    source = make_page(body, f"<title>Weirwood - {TITLE}</title>")
    told = [INTRO, TEAM, "What you will do", *TASKS]
    return Fixture(source, told, ["Requirements", *MUST, "Bonus points", *NICE])


def job_in_assigned_state() -> Fixture:
    """HTML and plain text of the same body, among values JSON does not know."""
    body = rich_text("<p><b>{}</b></p>")
    plain = re.sub(r"<[^>]+>", " ", body)
    posting = {"title": TITLE, "descriptionHtml": body, "descriptionPlainText": plain}
    posting |= {
        "departmentName": "Hydraulics",
        "locationName": "Chur",
        "employmentType": "FullTime",
    }
    state = json.dumps({"organization": {"name": "Weirwood"}, "posting": posting})
    script = f'<script>window.__appData = {state[:-1]},"jobBoard":undefined}};</script>'
    return Fixture(shell(script), RICH_TOLD, RICH_ASKED)


def job_with_bold_lines() -> Fixture:
    """Bold paragraphs are all the headings there are."""
    body = (
        f"<p>{INTRO}</p><p></p><p><b><span>About the role</span></b></p><p>{TEAM}</p>"
        f"<p style='text-align:left'><b>Key Responsibilities</b></p>{items(TASKS)}"
        f"<p><u><b>Minimum Qualifications:</b></u></p>{items(MUST)}"
        f"<p><b>Preferred Qualifications:</b></p>{items(NICE)}<p></p><p>{EEO}</p>"
    )
    told = [INTRO, "About the role", TEAM, "Key Responsibilities", *TASKS]
    asked = ["Minimum Qualifications", *MUST, "Preferred Qualifications", *NICE]
    return Fixture(shell(linked_data(body, hiringOrganization="Weirwood")), told, asked)


def job_in_microdata() -> Fixture:
    sections = (("Company Description", f"<p>{INTRO}</p>"), ("Job Description", f"<p>{TEAM}</p>"))
    body = "".join(
        f"<section><h2>{head}</h2><div>{text}</div></section>" for head, text in sections
    )
    body += f"<section><h2>Qualifications</h2><div itemprop='q'>{items(MUST)}</div></section>"
    source = (
        f"{NAVIGATION}<main itemscope itemtype='http://schema.org/JobPosting'>"
        f"<h1 itemprop='title'>{TITLE}</h1><p itemprop='jobLocation'>Chur, Switzerland</p>"
        f"<meta itemprop='hiringOrganization' content='Weirwood'>{body}</main>{FOOTER}"
    )
    told = ["Job Description", TEAM]
    return Fixture(make_page(source), told, ["Qualifications", *MUST])


def job_in_named_sections() -> Fixture:
    """The title on one level, the texts two levels below it."""
    sections = {
        "companyDescription": {"title": "Company Description", "text": f"<p>{INTRO}</p>"},
        "jobDescription": {"title": "Job Description", "text": f"<p>{TEAM}</p>{items(TASKS)}"},
        "qualifications": {"title": "Qualifications", "text": items([*MUST, *NICE])},
        "additionalInformation": {"title": "Additional Information", "text": f"<p>{BENEFITS}</p>"},
    }
    job = {"id": "81734", "name": TITLE, "jobAd": {"sections": sections}, "department": "Rivers"}
    script = f'<script type="application/json" id="state">{json.dumps({"job": job})}</script>'
    told = ["Job Description", TEAM, *TASKS]
    return Fixture(shell(script), told, ["Qualifications", *MUST, *NICE])


def job_among_positions() -> Fixture:
    """A hidden code tag with many jobs; only the address tells which one is meant."""
    names = (*OTHERS, TITLE)
    positions = [
        {"id": 81732 + n, "name": name, "location": "Chur", "job_description": rich_text()}
        for n, name in enumerate(names)
    ]
    data = html.escape(json.dumps({"positions": positions, "domain": "weirwood.example"}))
    source = shell(f"<code id='data' style='display:none'>{data}</code>", "Careers at Weirwood")
    return Fixture(source, RICH_TOLD, RICH_ASKED, "https://weirwood.example/careers?pid=81734")


def job_in_dotted_assignment() -> Fixture:
    job = {"jobId": "81734", "title": TITLE, "description": rich_text("<p><strong>{}</strong></p>")}
    state = {"jobDetail": {"status": 200, "data": {"job": job | {"cityState": "Chur"}}}}
    script = (
        f"<script>var phApp = phApp || {{}}; phApp.ddo = {json.dumps(state)}; phApp.go();</script>"
    )
    return Fixture(shell(script), RICH_TOLD, RICH_ASKED)


def job_in_keyless_calls() -> Fixture:
    """Lists without keys: the title, and texts each in a list of its own."""
    asked = f"<h3>Minimum qualifications:</h3>{items(MUST)}<br>"
    asked += f"<h3>Preferred qualifications:</h3>{items(NICE)}"
    job: list[Any] = [
        "81734",
        TITLE,
        "https://weirwood.example/apply",
        [None, items(TASKS)],
        [None, asked],
    ]
    job += [None, "Weirwood", "en-US", [["Chur", ["Chur"]]], [None, f"<p>{INTRO}</p><p>{TEAM}</p>"]]
    call = f"AF_initDataCallback({{key: 'ds:0', data:{json.dumps([job])}, sideChannel: {{}}}});"
    asked_words = ["Minimum qualifications", *MUST, "Preferred qualifications", *NICE]
    return Fixture(shell(f"<script>{call}</script>"), [*TASKS, INTRO, TEAM], asked_words)


def job_with_demands_first() -> Fixture:
    body = (
        f"<main><h2 class='p1'>{TITLE}</h2><div><span>Weirwood</span><span>Chur</span></div>"
        "<a href='./apply' aria-label='Apply'>Apply</a>"
        f"<div><h3>Minimum qualifications:</h3>{items(MUST)}<br><h3>Preferred qualifications:</h3>"
        f"{items(NICE)}</div><div><h3>About the job</h3><p>{INTRO}</p><p>{TEAM}</p></div>"
        f"<div><h3>Responsibilities</h3>{items(TASKS)}</div><div><p>{EEO}</p></div></main>"
        f"<div><h2>Similar jobs</h2><h3>{OTHERS[0]}</h3><p>Chur, Switzerland, on site</p></div>"
    )
    source = make_page(NAVIGATION + body + FOOTER, f"<title>{TITLE} — Weirwood Careers</title>")
    told = ["About the job", INTRO, TEAM, "Responsibilities", *TASKS]
    return Fixture(source, told, ["Minimum Preferred qualifications qualifications", *MUST, *NICE])


def job_with_broken_lines() -> Fixture:
    """Lines parted by <br>, with hyphens or dots for bullets."""
    lines = "<br/>".join(f"- {line}" for line in MUST)
    wishes = "<br/>".join(f"• {line}" for line in NICE)
    body = (
        f"<h1 class='title'>{TITLE}</h1><p>Job ID: 81734 | Weirwood Works GmbH</p>"
        "<a id='apply-button' href='/apply'>Apply now</a><div id='job-detail-body'>"
        f"<div class='section'><h2>Description</h2><p>{INTRO}<br/><br/>{TEAM}<br/><br/>"
        f"Key job responsibilities<br/>{'<br/>'.join(TASKS)}</p></div>"
        f"<div class='section'><h2>Basic Qualifications</h2><p>{lines}</p></div>"
        f"<div class='section'><h2>Preferred Qualifications</h2><p>{wishes}<br/><br/>{EEO}</p>"
        "</div></div>"
    )
    source = make_page(
        NAVIGATION + body + FOOTER, f"<title>{TITLE} - Job ID: 81734 | Weirwood.jobs</title>"
    )
    told = ["Description", INTRO, TEAM, "Key job responsibilities", *TASKS]
    return Fixture(source, told, ["Basic Preferred Qualifications Qualifications", *MUST, *NICE])


def job_in_parsed_string() -> Fixture:
    job = {"postingTitle": TITLE, "jobSummary": INTRO, "description": TEAM, "jobNumber": "81734"}
    job |= {"minimumQualifications": "\n".join(MUST), "preferredQualifications": "\n".join(NICE)}
    job["responsibilities"] = "\n".join(TASKS)
    data = json.dumps(json.dumps({"loaderData": {"jobDetails": {"jobsData": job}}}))
    script = f"<script>window.__hydrationData = JSON.parse({data});</script>"
    source = shell(script, f"{TITLE} - Careers at Weirwood")
    return Fixture(source, [INTRO, TEAM, *TASKS], [*MUST, *NICE])


def job_with_lists_of_items() -> Fixture:
    job: dict[str, Any] = {
        "title": TITLE,
        "description": f"{INTRO} {TEAM}",
        "departments": ["Rivers"],
    }
    for key, lines in (("responsibilities", TASKS), ("minimum_qualifications", MUST)):
        job[key] = [{"item": line} for line in lines]
    calls = {"require": [["Store", "load", [], [{"result": {"data": {"job_description": job}}}]]]}
    script = f'<script type="application/json" data-store>{json.dumps(calls)}</script>'
    return Fixture(shell(script), [INTRO, TEAM, *TASKS], MUST)


def job_in_percent_encoded_data() -> Fixture:
    """Plain text with line ends and numbers."""
    numbered = "\n".join(f"{n}. {line}" for n, line in enumerate(MUST, start=1))
    job: dict[str, Any] = {
        "title": TITLE,
        "description": f"{INTRO}\n{TEAM}\n",
        "requirement": numbered,
    }
    job |= {"city_info": {"name": "Chur"}, "job_category": {"name": "Rivers"}}
    data = quote(json.dumps({"app": {"jobDetail": job}}))
    script = f'<script id="RENDER_DATA" type="application/json">{data}</script>'
    return Fixture(shell(script), [INTRO, TEAM], MUST)


def job_with_nested_headings() -> Fixture:
    body = (
        f"<main><h1>{TITLE}</h1><section><h2>Who we are</h2><h3>About Weirwood</h3><p>{INTRO}</p>"
        f"<h3>About the team</h3><p>{TEAM}</p><h2>What you’ll do</h2>{items(TASKS)}"
        "<h2>Who you are</h2><p>We look for someone who meets the minimum requirements below.</p>"
        f"<h3>Minimum requirements</h3>{items(MUST)}<h3>Preferred requirements</h3>{items(NICE)}"
        f"<h2>Pay and benefits</h2><p>{BENEFITS}</p></section>"
        "<a href='/apply'>Apply for this role</a></main>"
    )
    told = ["About the team", TEAM, "What you’ll do", *TASKS]
    asked = ["Who you are", "We look for someone who meets the minimum requirements below.", *MUST]
    asked += ["Minimum requirements Preferred requirements", *NICE]
    return Fixture(make_page(body, f"<title>{TITLE}</title>"), told, asked)


def job_in_capitals() -> Fixture:
    """No markup but line breaks; headings in capitals."""
    parts = [INTRO, "THE ROLE", TEAM, *TASKS, "REQUIREMENTS", *(f"• {line}" for line in MUST)]
    parts += ["NICE TO HAVES", *(f"• {line}" for line in NICE), "BENEFITS", BENEFITS]
    told = [INTRO, "the role", TEAM, *TASKS]
    asked = ["requirements", *MUST, "nice to haves", *NICE]
    return Fixture(shell(linked_data("<br>".join(parts))), told, asked)


def job_in_page_attribute() -> Fixture:
    props = {
        "component": "Job",
        "props": {"job": {"title": TITLE, "body": rich_text(), "location": "Chur"}},
    }
    page = html.escape(json.dumps(props))
    return Fixture(shell(f'<div id="app" data-page="{page}"></div>'), RICH_TOLD, RICH_ASKED)


def job_in_row_stream() -> Fixture:
    text = html.escape(rich_text())
    row = json.dumps(
        {"job": {"title": TITLE, "content": "$1e", "location": "Chur", "departments": []}}
    )
    rows = (f"1e:T{len(text.encode()):x},", text, f"5:{row}\n")
    calls = "".join(
        f"<script>self.__next_f.push({json.dumps([1, piece])})</script>" for piece in rows
    )
    return Fixture(shell(calls), RICH_TOLD, RICH_ASKED)


def job_in_flat_list() -> Fixture:
    flat: list[Any] = [{"_1": 2}, "job", {"_3": 4, "_5": 6, "_7": 8}, "title", TITLE]
    flat += ["description", rich_text(), "department", "Rivers"]
    chunk = json.dumps(json.dumps(flat))
    script = f"<script>window.__ctx.streamController.enqueue({chunk});</script>"
    return Fixture(shell(script), RICH_TOLD, RICH_ASKED)


def job_flattened_in_linked_data() -> Fixture:
    """Linked data whose text lost its markup; the page beside it has it."""
    plain = re.sub(r"\s*<[^>]+>\s*", " ", rich_text())
    body = (
        f"<main><h1>{TITLE}</h1><p>Chur</p><div class='jd'>{rich_text('<h4>{}</h4>')}</div></main>"
    )
    body += "<button>Apply now</button>"
    head = f"<title>{TITLE} | Weirwood Careers</title>{linked_data(plain)}"
    return Fixture(make_page(body, head), RICH_TOLD, RICH_ASKED)


PLATFORMS = [
    job_with_platform_blocks,
    job_in_router_context,
    job_in_divs_with_classes,
    job_in_assigned_state,
    job_with_bold_lines,
    job_in_microdata,
    job_in_named_sections,
    job_among_positions,
    job_in_dotted_assignment,
    job_in_keyless_calls,
    job_with_demands_first,
    job_with_broken_lines,
    job_in_parsed_string,
    job_with_lists_of_items,
    job_in_percent_encoded_data,
    job_with_nested_headings,
    job_in_capitals,
    job_in_page_attribute,
    job_in_row_stream,
    job_in_flat_list,
    job_flattened_in_linked_data,
]


@pytest.mark.parametrize("build", PLATFORMS)
def test_a_job_is_extracted_the_same_however_its_page_is_built(
    build: Callable[[], Fixture],
) -> None:
    fixture = build()
    extracted = extract_web_page(make_raw(fixture.source, fixture.address))
    assert extracted.metadata.get("schema_type") == "JobPosting"
    assert extracted.title == extracted.metadata["title"] == TITLE
    assert score(extracted.metadata["description"], fixture.told) > 0.95
    assert score(extracted.metadata["requirements"], fixture.asked) > 0.95
