"""Job boards are listed with their postings, or not at all."""

import json
import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.crawl.boards import base as board_module
from penstock.crawl.boards.base import BoardListing, find_board, safe_html
from penstock.crawl.boards.platforms import BOARDS, board_in
from penstock.crawl.fetch import Fetched, Fetcher
from penstock.crawl.listing import Listed
from penstock.documents import RawDocument
from penstock.errors import ListingFailed
from penstock.text.extract import extract_text

from .scripted import Reply, ScriptedServer

KINDS = ("greenhouse", "lever", "ashby")
TASKS = "You will look after the mill by the river, its stones, its wheel and its apprentices."
ASKS = "Five years of experience with water wheels"


def greenhouse_job(**changes: Any) -> dict[str, Any]:
    content = f"<p>{TASKS}</p><h3>Requirements</h3><ul><li>{ASKS}</li></ul>"
    escaped = content.replace("<", "&lt;").replace(">", "&gt;")
    return {
        "absolute_url": "https://boards.greenhouse.io/acmemills/jobs/4012345",
        "data_compliance": [{"type": "gdpr", "requires_consent": False}],
        "internal_job_id": 2954321,
        "location": {"name": "Ulm, Germany"},
        "metadata": [
            {"id": 7, "name": "Employment Type", "value": "Full-time", "value_type": "short_text"}
        ],
        "id": 4012345,
        "updated_at": "2026-03-02T09:15:11-05:00",
        "requisition_id": "R-17",
        "title": "Senior Miller",
        "company_name": "Acme Mills",
        "first_published": "2026-02-27T10:00:00-05:00",
        "content": escaped,
        "departments": [{"id": 40, "name": "Milling", "child_ids": [], "parent_id": None}],
        "offices": [{"id": 50, "name": "Ulm", "location": "Ulm, Germany", "child_ids": []}],
        **changes,
    }


def lever_job(**changes: Any) -> dict[str, Any]:
    return {
        "additional": "<div>We bake on Fridays.</div>",
        "additionalPlain": "We bake on Fridays.",
        "categories": {
            "commitment": "Full-time",
            "department": "Operations",
            "location": "Ulm",
            "team": "Milling",
            "allLocations": ["Ulm", "Bern"],
        },
        "createdAt": 1772186400000,
        "descriptionPlain": TASKS,
        "description": f"<div>{TASKS}</div>",
        "id": "6f3b2c1d-0a9e-4a77-9d0e-7c1f5b1f2a11",
        "lists": [{"text": "Requirements", "content": f"<li>{ASKS}</li><li>Patience</li>"}],
        "text": "Senior Miller",
        "country": "DE",
        "workplaceType": "hybrid",
        "hostedUrl": "https://jobs.lever.co/acmemills/6f3b2c1d-0a9e-4a77-9d0e-7c1f5b1f2a11",
        "applyUrl": "https://jobs.lever.co/acmemills/6f3b2c1d-0a9e-4a77-9d0e-7c1f5b1f2a11/apply",
        "salaryRange": {
            "currency": "EUR",
            "interval": "per-year-salary",
            "min": 50000,
            "max": 60000,
        },
        **changes,
    }


def ashby_job(**changes: Any) -> dict[str, Any]:
    return {
        "id": "8d1e7b90-1f6a-4c44-8a51-1d8a6a1c9a55",
        "title": "Senior Miller",
        "department": "Operations",
        "team": "Milling",
        "employmentType": "FullTime",
        "location": "Ulm HQ",
        "secondaryLocations": [
            {"location": "Bern", "address": {"postalAddress": {"addressLocality": "Bern"}}}
        ],
        "publishedAt": "2026-02-27T10:00:00.000+00:00",
        "isListed": True,
        "isRemote": True,
        "workplaceType": "Hybrid",
        "address": {
            "postalAddress": {
                "addressLocality": "Ulm",
                "addressRegion": "Baden-Württemberg",
                "addressCountry": "Germany",
            }
        },
        "jobUrl": "https://jobs.ashbyhq.com/acmemills/8d1e7b90-1f6a-4c44-8a51-1d8a6a1c9a55",
        "applyUrl": "https://jobs.ashbyhq.com/acmemills/8d1e7b90/application",
        "descriptionHtml": f"<p>{TASKS}</p><h2>Requirements</h2><ul><li>{ASKS}</li></ul>",
        "descriptionPlain": TASKS,
        "shouldDisplayCompensationOnJobPostings": True,
        "compensation": {
            "compensationTierSummary": "€50K – €60K • Offers Equity",
            "summaryComponents": [
                {"compensationType": "EquityPercentage", "interval": "NONE", "minValue": 0.1},
                {
                    "compensationType": "Salary",
                    "interval": "1 YEAR",
                    "currencyCode": "EUR",
                    "minValue": 50000,
                    "maxValue": 60000.0,
                },
            ],
        },
        **changes,
    }


JOBS = {"greenhouse": greenhouse_job, "lever": lever_job, "ashby": ashby_job}


def board(kind: str, *jobs: Any) -> Any:
    """What the API of such a board answers."""
    if kind == "lever":
        return list(jobs)
    extra: dict[str, Any] = (
        {"apiVersion": "1"} if kind == "ashby" else {"meta": {"total": len(jobs)}}
    )
    return {"jobs": list(jobs), **extra}


class ScriptedFetcher:
    """Answers for the hosts that tests cannot ask."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def get(self, url: str) -> Fetched:
        self.asked.append(url)
        return Fetched(json.dumps(self.answers[url]).encode(), None, None, None, url)


def listing(kind: str, location: str, fetcher: Any = None) -> BoardListing:
    return BOARDS[kind](location, cast(Fetcher, fetcher))


def listed(kind: str, *jobs: Any, location: str = "https://jobs.test/board") -> list[Listed]:
    return list(listing(kind, location).list(board(kind, *jobs)))


def page_of(kind: str, **changes: Any) -> str:
    content = listed(kind, JOBS[kind](**changes))[0].content
    assert content is not None
    return content.decode()


def fields_of(kind: str, **changes: Any) -> dict[str, Any]:
    raw = RawDocument("1", page_of(kind, **changes).encode(), "text/html; charset=utf-8")
    return dict(extract_text(raw).metadata)


def data_of(page: str) -> dict[str, Any]:
    script = re.findall(r'<script type="application/ld\+json">(.*?)</script>', page, re.DOTALL)
    data: dict[str, Any] = json.loads(script[0])
    return data


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "greenhouse",
            {"company": "Acme Mills", "location": "Ulm, Germany", "employment_type": "Full-time"},
        ),
        (
            "lever",
            {
                "company": "acmemills",
                "location": "Ulm; Bern",
                "employment_type": "Full-time",
                "salary": "50000–60000 EUR / year",
            },
        ),
        (
            "ashby",
            {
                "company": "acmemills",
                "location": "Ulm, Baden-Württemberg, Germany; Bern",
                "employment_type": "FULL_TIME",
                "salary": "50000–60000 EUR / year",
            },
        ),
    ],
)
def test_a_posting_is_read_in_full_from_the_board(kind: str, expected: dict[str, str]) -> None:
    fields = fields_of(kind)
    assert fields["title"] == "Senior Miller"
    assert fields["date_posted"] == "2026-02-27"
    assert TASKS in fields["description"]
    assert ASKS in fields["requirements"]
    assert {key: fields.get(key) for key in expected} == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_is_named_by_its_id_and_leads_to_its_page(kind: str) -> None:
    job = JOBS[kind]()
    (found,) = listed(kind, job)
    assert found.external_id == str(job["id"])
    assert found.url.startswith("https://")
    assert found.url.endswith(str(job["id"]))
    assert found.title == "Senior Miller"
    assert found.media_type == "text/html; charset=utf-8"


@pytest.mark.parametrize("kind", KINDS)
def test_a_board_anywhere_is_fetched_as_it_is_and_once(
    kind: str, server: ScriptedServer, fetcher: Fetcher
) -> None:
    body = json.dumps(board(kind, JOBS[kind](), JOBS[kind](id="2")))
    location = server.page("/proxy/board?x=1", body, "application/json")
    found = list(listing(kind, location, fetcher).list())
    assert [one.external_id for one in found] == [str(JOBS[kind]()["id"]), "2"]
    assert [asked.path for asked in server.asked] == ["/robots.txt", "/proxy/board?x=1"]
    content = fetcher.fetch(found[1])
    assert isinstance(content, Fetched)
    assert content.content == found[1].content


@pytest.mark.parametrize(
    ("location", "kind", "api_url"),
    [
        *(
            (
                page,
                "greenhouse",
                "https://boards-api.greenhouse.io/v1/boards/acme/jobs?content=true",
            )
            for page in (
                "https://boards.greenhouse.io/acme",
                "http://boards.greenhouse.io/acme/",
                "https://job-boards.greenhouse.io/acme",
                "https://job-boards.eu.greenhouse.io/acme",
                "https://boards-api.greenhouse.io/v1/boards/acme/jobs",
                "https://boards-api.greenhouse.io/v1/boards/acme/jobs?content=true",
            )
        ),
        (
            "https://boards.greenhouse.io/embed/job_board?for=acme",
            "greenhouse",
            "https://boards-api.greenhouse.io/v1/boards/acme/jobs?for=acme&content=true",
        ),
        (
            "https://jobs.lever.co/acme?team=Mill%20Ops",
            "lever",
            "https://api.lever.co/v0/postings/acme?team=Mill+Ops&mode=json&skip=0&limit=100",
        ),
        (
            "https://jobs.eu.lever.co/acme",
            "lever",
            "https://api.eu.lever.co/v0/postings/acme?mode=json&skip=0&limit=100",
        ),
        (
            "https://api.lever.co/v0/postings/acme?mode=json",
            "lever",
            "https://api.lever.co/v0/postings/acme?mode=json&skip=0&limit=100",
        ),
        (
            "https://jobs.ashbyhq.com/Acme%20Mills",
            "ashby",
            "https://api.ashbyhq.com/posting-api/job-board/Acme%20Mills?includeCompensation=true",
        ),
        (
            "https://api.ashbyhq.com/posting-api/job-board/acme",
            "ashby",
            "https://api.ashbyhq.com/posting-api/job-board/acme?includeCompensation=true",
        ),
    ],
)
def test_a_known_board_is_read_from_its_json(location: str, kind: str, api_url: str) -> None:
    address = find_board(location)
    assert address is not None
    assert (address.kind, address.api_url) == (kind, api_url)
    fetcher = ScriptedFetcher({api_url: board(kind, JOBS[kind]())})
    assert len(list(listing(kind, location, fetcher).list())) == 1
    assert fetcher.asked == [api_url]


@pytest.mark.parametrize(
    "url",
    [
        "https://boards.greenhouse.io/",
        "https://boards.greenhouse.io/acme/jobs/4012345",
        "https://jobs.lever.co/acme/6f3b2c1d",
        "https://jobs.lever.co/embed/job_board?for=acme",
        "https://boards.greenhouse.io:8443/acme",
        "https://boards.greenhouse.io.evil.test/acme",
        "https://evil.test/boards.greenhouse.io/acme",
        "https://api.lever.co/v1/postings/acme",
        "not a url",
    ],
)
def test_one_job_and_other_hosts_are_no_known_board(url: str) -> None:
    assert find_board(url) is None


def test_the_company_is_the_name_of_the_board_where_the_job_does_not_say() -> None:
    (found,) = listed("ashby", ashby_job(), location="https://jobs.ashbyhq.com/Acme%20Mills")
    assert found.content is not None
    assert data_of(found.content.decode())["hiringOrganization"]["name"] == "Acme Mills"


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_job_is_the_same_bytes(kind: str) -> None:
    job = JOBS[kind]()
    backwards = dict(reversed(job.items()))
    touched = {**backwards, "updated_at": "2027-01-01T00:00:00Z", "internal_job_id": 1}
    assert listed(kind, job) == listed(kind, touched)
    assert "2026-03-02" not in page_of(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_needs_nothing_but_an_id_and_a_title(kind: str) -> None:
    title = "text" if kind == "lever" else "title"
    (found,) = listed(kind, {"id": 7, title: "  Miller\n(m/f)  "})
    assert (found.external_id, found.title) == ("7", "Miller (m/f)")
    assert found.url == "https://jobs.test/board"
    assert found.content is not None
    assert set(data_of(found.content.decode())) == {
        *("@context", "@type", "title", "url", "identifier")
    }


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_board_is_an_empty_listing(kind: str) -> None:
    assert listed(kind) == []
    if kind != "lever":
        assert list(listing(kind, "https://jobs.test/").list({"jobs": []})) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_repeated_job_is_listed_once(kind: str) -> None:
    assert len(listed(kind, JOBS[kind](), JOBS[kind]())) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("job_id", [None, "", " ", True, 1.5, [], {"x": 1}])
def test_a_job_without_an_id_fails_the_listing(kind: str, job_id: Any) -> None:
    with pytest.raises(ListingFailed, match="job 2 has no id"):
        listed(kind, JOBS[kind](), JOBS[kind](id=job_id))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("title", [None, "", "\x00 ", 5, ["x"]])
def test_a_job_without_a_title_fails_the_listing_and_is_named(kind: str, title: Any) -> None:
    key = "text" if kind == "lever" else "title"
    with pytest.raises(ListingFailed, match="job 2, with the id 99, has no title"):
        listed(kind, JOBS[kind](), JOBS[kind](**{"id": 99, key: title}))


@pytest.mark.parametrize(
    ("kind", "key"),
    [("greenhouse", "content"), ("lever", "description"), ("ashby", "descriptionHtml")],
)
def test_a_posting_that_is_no_text_fails_the_listing(kind: str, key: str) -> None:
    with pytest.raises(ListingFailed, match=f"id 99, has a {key} that is not a text"):
        listed(kind, JOBS[kind](**{"id": 99, key: ["x"]}))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("entry", [None, 5, "job", [], {}])
def test_an_entry_that_is_no_job_fails_the_listing(kind: str, entry: Any) -> None:
    with pytest.raises(ListingFailed, match="job 2 has no id"):
        listed(kind, JOBS[kind](), entry)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "body",
    [
        "",
        "<html>maintenance</html>",
        "null",
        "5",
        '"jobs"',
        "{",
        '{"error": "not found"}',
        '{"ok": false, "error": "Document not found"}',
        '{"jobs": null}',
        '{"jobs": {"id": 1}}',
        "[" * 100_000,
        '{"jobs": [' + "9" * 5000 + "]}",
    ],
)
def test_an_answer_that_is_no_board_fails_the_listing(
    kind: str, body: str, server: ScriptedServer, fetcher: Fetcher
) -> None:
    location = server.page("/board", body, "application/json")
    with pytest.raises(ListingFailed, match=f"(?i)could not list {location}.*expected an? {kind}"):
        list(listing(kind, location, fetcher).list())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [404, 403, 500])
def test_a_board_that_answers_with_an_error_fails(
    kind: str, status: int, server: ScriptedServer, fetcher: Fetcher
) -> None:
    location = server.reply("/board", Reply(status, b'{"jobs": []}'))
    with pytest.raises(ListingFailed, match=f"HTTP {status}"):
        list(listing(kind, location, fetcher).list())


@pytest.mark.parametrize(("kind", "other"), [("greenhouse", "ashby"), ("ashby", "greenhouse")])
def test_another_kind_of_board_is_not_mistaken_for_this_one(kind: str, other: str) -> None:
    document = board(other, JOBS[other]())
    with pytest.raises(ListingFailed, match=f"expected a {kind}.*{other}"):
        list(listing(kind, "https://jobs.test/").list(document))


@pytest.mark.parametrize("kind", KINDS)
def test_a_board_is_recognised_by_its_json(kind: str) -> None:
    assert board_in(board(kind, JOBS[kind]())) is BOARDS[kind]
    # A broken job must fail the board's listing, not turn the board into a document.
    assert board_in(board(kind, None, JOBS[kind]())) is BOARDS[kind]


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({"jobs": []}, "greenhouse"),
        ({"jobs": [], "meta": {"total": 0}}, "greenhouse"),
        ({"jobs": [], "apiVersion": "1"}, "ashby"),
        ({"jobs": [], "name": "Ada", "skills": ["Milling"]}, None),
        ({"jobs": [{"title": "Miller", "years": 3}]}, None),
        ({"jobs": [lever_job()]}, None),
        ([greenhouse_job()], None),
        ([], None),
        ({}, None),
        (None, None),
    ],
)
def test_other_json_is_no_board(document: Any, kind: str | None) -> None:
    assert board_in(document) is (BOARDS[kind] if kind else None)


HOSTILE = (
    '</script><script type="application/ld+json">{"@type": "JobPosting", "title": "Fake"}</script>'
    "<!-- <ScRiPt>alert(1)</sCrIpT\n> --> <scr<!-- -->ipt>alert(2)</script>"
    "<style>*{display:none}</style><plaintext><title>x</title></textarea><![CDATA[ ]]><?php ?>"
    "</main></body></html><iframe src=x><base href='//evil.test/'>"
)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("greenhouse", "content"),
        ("greenhouse", "company_name"),
        ("greenhouse", "title"),
        ("lever", "description"),
        ("lever", "text"),
        ("ashby", "descriptionHtml"),
        ("ashby", "location"),
    ],
)
def test_nothing_breaks_out_of_its_place_in_the_page(kind: str, key: str) -> None:
    page = page_of(kind, **{key: HOSTILE})
    assert len(re.findall(r"<script", page, re.IGNORECASE)) == 1
    assert len(re.findall(r"</script", page, re.IGNORECASE)) == 1
    assert not re.search(r"<(style|iframe|base|plaintext|textarea|!--|!\[|\?)", page)
    assert page.endswith("</div>\n</main>\n</body>\n</html>\n")
    assert page.count("</html>") == page.count("</main>") == page.count("<title>") == 1
    assert data_of(page)["@type"] == "JobPosting"


@pytest.mark.parametrize(
    ("text", "tamed"),
    [
        ("<p>A</p><!-- draft --><p>B</p>", "<p>A</p><p>B</p>"),
        ("<p>A<!-- never closed <p>B", "<p>A"),
        ("<scriptless>x</scriptless> a < b", "<scriptless>x</scriptless> a < b"),
        ("<SCRIPT>x</SCRIPT >", "&lt;SCRIPT>x&lt;/SCRIPT >"),
        ("<header>x</header>", "<header>x</header>"),
    ],
)
def test_harmless_markup_stays(text: str, tamed: str) -> None:
    assert safe_html(text) == tamed


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["<!--", "<", "<!-", "<script", "&lt;", "<p>"])
def test_long_descriptions_do_not_take_for_ever(piece: str) -> None:
    assert page_of("greenhouse", content=piece * 300_000)


@pytest.mark.parametrize("kind", KINDS)
def test_all_of_unicode_is_kept_except_what_databases_refuse(kind: str) -> None:
    title = "text" if kind == "lever" else "title"
    (found,) = listed(
        kind, JOBS[kind](**{title: "Müller 🎡 磨坊\x00\ud800 مطحنة", "id": "ü\udfff"})
    )
    assert (found.external_id, found.title) == ("ü", "Müller 🎡 磨坊 مطحنة")
    assert found.content is not None
    assert data_of(found.content.decode())["title"] == "Müller 🎡 磨坊 مطحنة"


def test_a_long_title_is_cut_for_the_list_only() -> None:
    (found,) = listed("greenhouse", greenhouse_job(title="x" * 1000))
    assert found.title == "x" * 300
    assert found.content is not None
    assert "x" * 1000 in found.content.decode()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/careers/1", "https://jobs.test/careers/1"),
        ("javascript:alert(1)", "https://jobs.test/board"),
        ("http://[", "https://jobs.test/board"),
        (5, "https://jobs.test/board"),
        ("https://me:pw@a.test/1", "https://a.test/1"),
    ],
)
def test_a_job_leads_to_a_web_page_whatever_its_link_says(url: Any, expected: str) -> None:
    assert listed("greenhouse", greenhouse_job(absolute_url=url))[0].url == expected


def test_unlisted_jobs_are_not_listed() -> None:
    hidden = ashby_job(id="2", isListed=False, title=None)
    assert [found.external_id for found in listed("ashby", hidden, ashby_job(id="3"))] == ["3"]


@pytest.mark.parametrize(
    ("kind", "changes", "location"),
    [
        ("greenhouse", {"location": None}, "Ulm, Germany"),
        ("lever", {"workplaceType": "remote", "categories": {}}, "Remote"),
        (
            "lever",
            {"workplaceType": "remote", "categories": {"location": "Remote, EU"}},
            "Remote, EU",
        ),
        (
            "ashby",
            {"workplaceType": "Remote", "address": None, "secondaryLocations": None},
            "Ulm HQ; Remote",
        ),
        (
            "ashby",
            {"workplaceType": None, "address": None, "secondaryLocations": None},
            "Ulm HQ; Remote",
        ),
    ],
)
def test_places_are_read_in_their_shapes(kind: str, changes: dict[str, Any], location: str) -> None:
    assert fields_of(kind, **changes)["location"] == location


@pytest.mark.parametrize(
    ("kind", "changes", "salary"),
    [
        (
            "greenhouse",
            {
                "pay_input_ranges": [
                    {"min_cents": 5000000, "max_cents": 6000050, "currency_type": "EUR"}
                ]
            },
            "50000–60000.5 EUR",
        ),
        (
            "lever",
            {"salaryRange": {"min": 20, "max": 20, "currency": "USD", "interval": "per-hour-wage"}},
            "20 USD / hour",
        ),
        ("lever", {"salaryRange": {"min": 20.5, "interval": "one-time"}}, "20.5"),
        ("lever", {"salaryRange": {"min": float("nan"), "max": 1e300}}, None),
        ("ashby", {"shouldDisplayCompensationOnJobPostings": False}, None),
        ("ashby", {"compensation": {"summaryComponents": [{"minValue": 1}]}}, None),
    ],
)
def test_pay_is_read_where_it_is_public(
    kind: str, changes: dict[str, Any], salary: str | None
) -> None:
    assert fields_of(kind, **changes).get("salary") == salary


@pytest.mark.parametrize(
    "content", ["&lt;p&gt;Mills &amp;lt; 5 m&lt;/p&gt;", "<p>Mills &lt; 5 m</p>"]
)
def test_a_greenhouse_description_is_read_escaped_or_not(content: str) -> None:
    page = page_of("greenhouse", content=content)
    assert data_of(page)["description"] == "<p>Mills &lt; 5 m</p>"
    assert "\n<p>Mills &lt; 5 m</p>\n" in page


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (
            "lever",
            {"description": None, "opening": "<p>Hello</p>", "descriptionBody": "<p>you</p>"},
        ),
        ("lever", {"description": None, "descriptionPlain": "Hello\n\n<you>"}),
        ("ashby", {"descriptionHtml": None, "descriptionPlain": "Hello\n\n<you>"}),
    ],
)
def test_a_description_is_found_where_the_usual_one_is_missing(
    kind: str, changes: dict[str, Any]
) -> None:
    assert "<p>Hello</p>" in page_of(kind, **changes)


LEVER_API = "https://api.lever.co/v0/postings/acme?mode=json"


def lever_page(skip: int, count: int) -> tuple[str, list[Any]]:
    jobs = [lever_job(id=str(number)) for number in range(skip, skip + count)]
    return f"{LEVER_API}&skip={skip}&limit=100", jobs


def lever_ids(fetcher: ScriptedFetcher, location: str = "https://jobs.lever.co/acme") -> list[str]:
    return [found.external_id for found in listing("lever", location, fetcher).list()]


def test_lever_is_read_page_by_page_until_a_short_one() -> None:
    pages = dict([lever_page(0, 100), lever_page(100, 100), lever_page(200, 7)])
    fetcher = ScriptedFetcher(pages)
    assert lever_ids(fetcher) == [str(number) for number in range(207)]
    assert fetcher.asked == list(pages)


def test_the_last_page_of_lever_may_be_empty() -> None:
    assert len(lever_ids(ScriptedFetcher(dict([lever_page(0, 100), lever_page(100, 0)])))) == 100


def test_any_server_that_answers_with_a_full_page_of_lever_is_asked_for_more() -> None:
    location = "https://jobs.test/board?x=1"
    first, second = lever_page(0, 100)[1], lever_page(100, 3)[1]
    fetcher = ScriptedFetcher({location: first, f"{location}&skip=100&limit=100": second})
    assert len(lever_ids(fetcher, location)) == 103


def test_a_page_of_lever_has_the_size_that_was_asked_for() -> None:
    location = "https://jobs.test/board?limit=2"
    first, second = lever_page(0, 2)[1], lever_page(2, 1)[1]
    fetcher = ScriptedFetcher({location: first, f"{location}&skip=2": second})
    assert len(lever_ids(fetcher, location)) == 3


def test_a_server_that_repeats_its_page_has_no_more() -> None:
    location = "https://jobs.test/board"
    same = lever_page(0, 100)[1]
    fetcher = ScriptedFetcher({location: same, f"{location}?skip=100&limit=100": same})
    assert len(lever_ids(fetcher, location)) == 100


def test_a_page_of_lever_that_fails_fails_the_listing(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    location = server.page("/board", json.dumps(lever_page(0, 100)[1]))
    found = listing("lever", location, fetcher).list()
    assert next(found).external_id == "0"
    with pytest.raises(ListingFailed, match="HTTP 404"):
        list(found)


def test_pages_without_end_fail_the_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "MAX_PAGES", 2)
    pages = [lever_page(0, 100), lever_page(100, 100), lever_page(200, 1)]
    with pytest.raises(ListingFailed, match="more than 2 pages"):
        lever_ids(ScriptedFetcher(dict(pages)))


@pytest.mark.full_suite
@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_jobs_are_listed_one_at_a_time(
    kind: str, server: ScriptedServer, fetcher: Fetcher
) -> None:
    body = json.dumps(board(kind, *(JOBS[kind](id=str(number)) for number in range(10_000))))
    location = server.page("/board", body, "application/json")
    found = listing(kind, location, fetcher).list()
    assert isinstance(found, Iterator)
    assert [one.external_id for one in found] == [str(number) for number in range(10_000)]


ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**14, 10**400)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=20)
    | st.sampled_from(["<p>x</p>", HOSTILE, "2026-01-01", "https://a.test/", "//[", "Remote"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.data())
def test_wrong_types_anywhere_end_as_a_listing_or_as_its_failure(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    job = JOBS[kind]()
    for key in data.draw(st.lists(st.sampled_from(sorted(job)), max_size=6, unique=True)):
        value = job[key]
        if isinstance(value, dict) and value and data.draw(st.booleans()):
            job[key] = {**value, data.draw(st.sampled_from(sorted(value))): data.draw(ANY_JSON)}
        else:
            job[key] = data.draw(ANY_JSON)
    try:
        found = listed(kind, job)
    except ListingFailed:
        return
    for one in found:
        assert one.external_id.encode()
        assert (one.title or "").encode()
        assert data_of((one.content or b"").decode())["title"]


@given(ANY_JSON, st.sampled_from(KINDS))
def test_any_json_is_a_board_or_refused(document: Any, kind: str) -> None:
    board_in(document)
    try:
        assert list(listing(kind, "https://jobs.test/").list(document)) == []
    except ListingFailed:
        return
    assert document == [] or document.get("jobs") == []
