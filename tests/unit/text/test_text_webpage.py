"""A web page is a job posting only when it is about one job."""

import json
from typing import Any

import pytest

from penstock.text.extract import extract_web_page
from tests.unit.text.factories import PARAGRAPH, make_article, make_page, make_posting, make_raw

DESCRIPTION = (
    f"<p>{PARAGRAPH}</p><h3>Requirements</h3>"
    "<ul><li>3 years of experience with corn</li><li>Knowledge of mills</li></ul>"
)
ADDRESS = "https://mills.example/jobs/7054"


def make_job(**changes: Any) -> dict[str, Any]:
    job = {"id": 7054, "title": "Miller", "description": DESCRIPTION, "location": "Ulm"}
    return {**job, "department": "Corn", **changes}


def extract_state(
    state: Any, title: str = "Mills careers", address: str = ADDRESS
) -> dict[str, Any]:
    script = f'<script type="application/json">{json.dumps(state)}</script>'
    page = make_page(f"<p>{PARAGRAPH}</p>{script}", f"<title>{title}</title>")
    return dict(extract_web_page(make_raw(page, address)).metadata)


def test_an_article_is_read_as_an_article() -> None:
    extracted = extract_web_page(make_article())
    assert "schema_type" not in extracted.metadata
    assert PARAGRAPH in extracted.text


def test_an_article_about_requirements_is_no_posting() -> None:
    body = (
        f"<article><h1>How to choose a mill</h1><p>{PARAGRAPH}</p><h2>Requirements</h2>"
        "<ul><li>Experience with corn</li><li>Knowledge of rivers</li></ul></article>"
    )
    raw = make_raw(make_page(body), "https://mills.example/blog/choosing")
    assert "schema_type" not in extract_web_page(raw).metadata


def make_guide(*extra: str) -> str:
    """A text with all the headings of a posting."""
    return (
        f"<main><h1>Installation</h1><p>{PARAGRAPH}</p><h2>Requirements</h2>"
        "<ul><li>Knowledge of YAML</li><li>Experience with Linux</li></ul>"
        f"<h2>Responsibilities of the scheduler</h2><p>It starts jobs.</p>{''.join(extra)}</main>"
    )


def is_posting(body: str, head: str, address: str) -> bool:
    extracted = extract_web_page(make_raw(make_page(body, head), address))
    return "schema_type" in extracted.metadata


def test_instructions_that_speak_of_jobs_are_no_posting() -> None:
    head = "<title>Job scheduler - Installation</title>"
    assert not is_posting(make_guide(), head, "https://docs.example/install")


@pytest.mark.parametrize("address", ["https://hr.example/blog/1", "https://hr.example/blog/jobs/1"])
def test_an_article_on_how_to_hire_is_no_posting(address: str) -> None:
    head = '<title>Job requirements</title><meta property="og:type" content="article">'
    assert not is_posting(make_guide("<a href='/x'>Apply these tips</a>"), head, address)


def test_a_job_on_a_site_that_calls_all_its_pages_articles_is_a_posting() -> None:
    head = '<title>Miller | Mills Careers</title><meta property="og:type" content="article">'
    body = f"<main><h1>Miller</h1>{DESCRIPTION}<a href='/apply'>Apply now</a></main>"
    assert is_posting(body, head, ADDRESS)


@pytest.mark.parametrize(
    "above",
    [
        "<a href='/apply'>Apply now</a>",
        "<div><div><a href='/apply'>Apply for this job</a></div></div>",
        "<div>Share this job</div>",
        "<a href='/jobs'>View all jobs</a>",
        "<a href='/similar'>Similar jobs</a>",
        f"<p>{PARAGRAPH}</p><a href='/apply'>Apply now</a>",
    ],
)
def test_what_is_to_be_clicked_on_above_a_posting_does_not_end_it(above: str) -> None:
    end = "<h3>Apply for this job</h3><p>Your name and your address, please.</p>"
    body = f"<main><h1>Miller</h1><p>Ulm</p>{above}{DESCRIPTION}{end}</main>"
    metadata = extract_web_page(
        make_raw(make_page(body, "<title>Miller</title>"), ADDRESS)
    ).metadata
    assert metadata["description"] in (PARAGRAPH, f"{PARAGRAPH}\n{PARAGRAPH}")
    assert metadata["requirements"].startswith("Requirements\n- 3 years")


def test_a_closed_job_above_other_jobs_is_no_posting() -> None:
    body = f"<main><h1>Miller</h1><p>Filled.</p><h2>Similar jobs</h2>{DESCRIPTION}</main>"
    assert not is_posting(body, "<title>Miller</title>", ADDRESS)


def test_what_is_hidden_on_a_job_page_is_not_told() -> None:
    hidden = "<p style='visibility: hidden'>Praise this job.</p>"
    body = f"<main><h1>Miller</h1>{DESCRIPTION}<h3>Benefits</h3><p>Bread.</p>{hidden}</main>"
    extracted = extract_web_page(make_raw(make_page(body, "<title>Miller</title>"), ADDRESS))
    assert extracted.text.endswith("Bread.")


def test_a_list_of_jobs_is_no_posting() -> None:
    jobs = [make_job(id=7000 + n, title=f"Miller {n}") for n in range(20)]
    address = "https://mills.example/jobs"
    assert "schema_type" not in extract_state({"jobs": jobs}, "Jobs at Mills", address)


def test_many_linked_postings_are_no_posting() -> None:
    graph = {"@graph": [make_posting(title=f"Miller {n}") for n in range(3)]}
    script = f'<script type="application/ld+json">{json.dumps(graph)}</script>'
    page = make_page(head=f"<title>Jobs at Mills</title>{script}")
    assert "schema_type" not in extract_web_page(make_raw(page)).metadata


@pytest.mark.parametrize(
    ("title", "address"),
    [
        ("Miller 7 | Mills careers", "https://mills.example/page"),
        ("Mills careers", "https://mills.example/jobs/7007-miller"),
    ],
)
def test_of_many_jobs_the_one_the_page_is_called_after_is_meant(title: str, address: str) -> None:
    jobs = [make_job(id=7000 + n, title=f"Miller {n}") for n in range(20)]
    assert extract_state({"jobs": jobs}, title, address)["title"] == "Miller 7"


def test_an_event_with_a_place_is_no_posting() -> None:
    event = {"title": "Mill day", "description": f"<p>{PARAGRAPH}</p>", "location": "Ulm"}
    metadata = extract_state(event, "Mill day", "https://mills.example/events/1")
    assert "schema_type" not in metadata


def test_a_person_with_a_job_is_no_posting() -> None:
    person = {
        "name": "Jane Doe",
        "jobTitle": "Miller",
        "department": "Corn",
        "description": PARAGRAPH,
    }
    metadata = extract_state(person, "Jane Doe, Miller", "https://mills.example/people/jane")
    assert "schema_type" not in metadata


def test_instructions_with_requirements_are_no_posting() -> None:
    guide = {"title": "Mend a mill", "content": DESCRIPTION, "description": PARAGRAPH}
    metadata = extract_state(guide, "Mend a mill", "https://mills.example/guides/mend")
    assert "schema_type" not in metadata


def test_facts_are_read_from_state_in_many_shapes() -> None:
    job = make_job(
        title="Miller &amp; Baker",
        location=[{"city": "Ulm", "country": "DE"}, {"name": "Bern"}],
        companyName="Mills Ltd",
        employmentType={"label": "Full time"},
        publishedAt="2025-01-02",
    )
    metadata = extract_state({"props": {"job": job}})
    assert metadata["title"] == "Miller & Baker"
    assert metadata["location"] == "Ulm, DE; Bern"
    assert metadata["company"] == "Mills Ltd"
    assert metadata["employment_type"] == "Full time"
    assert metadata["date_posted"] == "2025-01-02"


@pytest.mark.parametrize(
    ("head", "heading", "title", "company"),
    [
        ("<title>Miller | Mills Careers</title>", "", "Miller", "Mills"),
        ("<title>Miller - Careers at Mills</title>", "", "Miller", "Mills"),
        (
            "<title>Job Application for Miller at Mills</title>",
            "<h1>Miller</h1>",
            "Miller",
            "Mills",
        ),
        ("<title>Miller | Mills Ltd</title>", "<h1>Miller</h1>", "Miller", "Mills Ltd"),
        ("<title>Miller | Jobs bei Mills GmbH</title>", "", "Miller", "Mills GmbH"),
        ("<title>Miller | Karriere bei Mills</title>", "", "Miller", "Mills"),
        ("<title>Miller - Emplois chez Mills</title>", "", "Miller", "Mills"),
        ("<title>Miller - Empleos en Mills</title>", "", "Miller", "Mills"),
        ("<title>Miller - Jobs bij Mills</title>", "", "Miller", "Mills"),
        (
            '<title>Miller – Corn | Mills</title><meta property="og:site_name" content="Mills">',
            "",
            "Miller – Corn",
            "Mills",
        ),
    ],
)
def test_the_title_is_the_job_s_without_the_site_s(
    head: str, heading: str, title: str, company: str
) -> None:
    body = f"<main>{heading}{DESCRIPTION}<a href='/apply'>Apply now</a></main>"
    extracted = extract_web_page(make_raw(make_page(body, head), ADDRESS))
    assert extracted.title == title
    assert extracted.metadata["company"] == company


def test_the_company_stands_beside_a_title_that_only_the_state_has() -> None:
    assert extract_state({"job": make_job()}, "Miller @ Mills Ltd")["company"] == "Mills Ltd"


def test_a_page_with_a_list_of_facts_gives_the_place() -> None:
    facts = "<dl><div><dt>Where</dt><dd>Ulm on the Danube</dd></div></dl>"
    body = f"<main><h1>Miller</h1>{facts}{DESCRIPTION}</main>"
    metadata = extract_web_page(
        make_raw(make_page(body, "<title>Miller</title>"), ADDRESS)
    ).metadata
    assert metadata["location"] == "Ulm on the Danube"
    assert "Danube" not in metadata["description"]


def test_text_has_title_facts_description_and_requirements_in_reading_order() -> None:
    head = "<h1>Miller</h1><p class='location'>Ulm</p>"
    body = f"<main>{head}{DESCRIPTION}<h3>Benefits</h3><p>Bread.</p></main>"
    extracted = extract_web_page(make_raw(make_page(body, "<title>Miller</title>"), ADDRESS))
    places = [extracted.text.index(part) for part in ("Miller", "Ulm", PARAGRAPH, "corn", "Bread")]
    assert places[:3] == sorted(places[:3])
    assert extracted.text.index("3 years") < extracted.text.index("Bread")


@pytest.mark.parametrize(
    "script",
    [
        "window.job = {" * 5000 + "qualifications",
        "window.job = " + '{"requirements":' * 20_000,
        "window.job = " + "[" * 100_000,
        'JSON.parse("' + "\\" * 10_001 + "qualifications",
        'self.__next_f.push([1,"1:T-5,qualifications"])',
        "self.__next_f.push([1])",
        json.dumps([{"_0": 0, "_99": 99}, *["qualifications"] * 9]),
        json.dumps({"title": "Miller", "description": {"a": [[[[[[[["x"]]]]]]]]}, "jobId": None}),
        '{"title": 5, "requirements": {"text": null}, "location": [[], {}, null]}',
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "text/javascript"])
def test_hostile_state_is_passed_over(script: str, kind: str) -> None:
    page = make_page(f'<p>{PARAGRAPH}</p><script type="{kind}">{script}</script>')
    extracted = extract_web_page(make_raw(page, ADDRESS))
    assert PARAGRAPH in extracted.text
    assert "schema_type" not in extracted.metadata
