"""Only forms of this server's own pages change anything."""

import pytest

from tests.dashboard.furnishing import Furnished
from tests.dashboard.pages import Exhibit, Pages
from tests.dashboard.routes import EVERY_FORM, fields_of, path_of

FORMS = sorted(EVERY_FORM)
ELSEWHERE = (
    {"Origin": "https://evil.example"},
    {"Origin": "http://127.0.0.1:9999"},
    {"Origin": "http://127.0.0.1.evil.example"},
    {"Origin": "null"},
    {"Origin": "http://["},
    {"Origin": ""},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
    {"Origin": "http://127.0.0.1", "Sec_Fetch_Site": "cross-site"},
)
FROM_HERE = {"Origin": "http://127.0.0.1", "Sec_Fetch_Site": "same-origin"}
# In an order in which none takes away what the next one needs.
DONE = {
    "/ui/queues/dead-letters": "Retrying 1 failed",
    "/ui/runs/{run_id}/retry": "1 of 1 failed job",
    "/ui/queues/jobs/{job_id}/retry": "restarted",
    "/ui/documents/{node_id}/refresh": "queued",
    "/ui/documents/{node_id}/fields": "industries corrected",
    "/ui/documents/{node_id}/accept": "Accepted",
    "/ui/runs/{run_id}/abort": "aborted",
    "/ui/documents/{node_id}/delete": "Document deleted",
    "/ui/tenant": "Switched to tenant globex",
}


def test_every_form_is_known_to_these_tests(exhibit: Exhibit) -> None:
    assert exhibit.pages.routes("POST") == EVERY_FORM


@pytest.mark.parametrize("route", FORMS)
def test_a_form_without_the_secret_of_its_session_does_nothing(
    exhibit: Exhibit, route: str
) -> None:
    pages, acme = exhibit.pages, exhibit.acme
    path, fields = path_of(route, acme), fields_of(route, acme)
    right = pages.csrf()
    before = (pages.everything(), dict(pages.http.cookies))

    for wrong in ({}, {"csrf": ""}, {"csrf": "x" * 43}, {"csrf": right[:-1]}, {"csrf": "é" * 43}):
        shown = pages.send_raw(path, {**fields, **wrong}, 403)
        assert "reload the page" in shown.words
    pages.http.cookies.clear()
    pages.send_raw(path, {**fields, "csrf": right}, 403)
    pages.send_raw(path, {**fields, "csrf": ""}, 403)

    assert pages.everything() == before[0]


@pytest.mark.parametrize("route", FORMS)
def test_a_form_of_another_site_does_nothing(exhibit: Exhibit, route: str) -> None:
    pages, acme = exhibit.pages, exhibit.acme
    path = path_of(route, acme)
    fields = {**fields_of(route, acme), "csrf": pages.csrf()}
    before = (pages.everything(), dict(pages.http.cookies))

    for headers in ELSEWHERE:
        shown = pages.send_raw(path, fields, 403, **headers)
        assert "another site" in shown.words

    assert (pages.everything(), dict(pages.http.cookies)) == before


@pytest.mark.both_databases
def test_a_form_of_ours_is_done_and_the_next_page_says_so(pages: Pages, acme: Furnished) -> None:
    for route, done in DONE.items():
        fields = {**fields_of(route, acme), "csrf": pages.csrf()}
        before = pages.everything()

        sent = pages.send_raw(path_of(route, acme), fields, 303, **FROM_HERE)

        (said,) = pages.look(sent.answer.headers["location"]).texts("[role=status].said")
        assert done in said
        assert route == "/ui/tenant" or pages.everything() != before, route
        assert pages.look("/ui/cost").texts(".said") == [], "it is said once"


def test_pages_renew_a_secret_that_is_too_short_to_be_one(exhibit: Exhibit) -> None:
    pages = exhibit.pages
    pages.http.cookies.set("penstock_csrf", "short", path="/ui", domain="127.0.0.1")

    pages.use_tenant("globex")

    assert pages.look("/ui/runs").attributes("#tenant", "value") == ["globex"]


def test_signing_in_makes_a_new_secret(guarded: Pages) -> None:
    before = guarded.csrf()
    guarded.sign_in()

    assert guarded.csrf() != before


def test_a_form_that_is_too_large_is_refused(exhibit: Exhibit) -> None:
    pages = exhibit.pages
    secret = pages.csrf()

    answer = pages.http.post("/ui/tenant", data={"csrf": secret, "tenant": "x" * 100_000})

    assert answer.status_code == 413


@pytest.mark.parametrize("number", ["x", "-1", "9" * 30, "1.5", "²"])
def test_a_number_that_is_none_is_refused(exhibit: Exhibit, number: str) -> None:
    pages = exhibit.pages
    assert "number" in pages.send("/ui/queues/dead-letters", 400, stage="text", job=number).words


def test_a_stage_that_is_none_is_refused_with_those_there_are(exhibit: Exhibit) -> None:
    pages = exhibit.pages
    shown = pages.send("/ui/queues/dead-letters", 400, stage="nowhere")

    assert "text, extract or embed" in shown.words


def test_an_upload_in_a_form_is_refused(exhibit: Exhibit) -> None:
    pages = exhibit.pages
    answer = pages.http.post(
        "/ui/tenant", data={"csrf": pages.csrf()}, files={"tenant": ("a.txt", b"acme")}
    )

    assert answer.status_code == 400
