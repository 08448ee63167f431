"""What every answer tells the browser, and what no page holds."""

import re
from unittest.mock import Mock

import pytest

from entrypoints.dashboard import rendering
from penstock.search.hybrid import Searcher
from tests.dashboard.pages import HOST, Exhibit, Pages, Shown
from tests.dashboard.routes import EVERY_PAGE, path_of

ASSETS = sorted(path.name for path in rendering.STATIC.iterdir())
ERRORS = (
    "/ui/nothing/here",
    "/ui/runs/999999",
    "/ui/runs/x",
    "/ui/documents/x",
    "/ui/static/nothing.js",
    "/ui/static/../app.py",
    "/ui/cost?days=0",
    "/ui/search?q=a&mode=magic",
)
# A link is followed by a person; these are fetched by the page itself.
FETCHED = (("[src]", "src"), ("link[href]", "href"), ("[srcset]", "srcset"), ("[data]", "data"))


def policy_of(shown: Shown) -> dict[str, list[str]]:
    parts = shown.answer.headers["content-security-policy"].split(";")
    return {name: sources for name, *sources in map(str.split, parts)}


def check_headers(shown: Shown) -> None:
    headers = shown.answer.headers
    policy = policy_of(shown)
    assert policy["default-src"] == ["'none'"]
    assert {source for sources in policy.values() for source in sources} <= {"'none'", "'self'"}
    assert policy["frame-ancestors"] == policy["base-uri"] == ["'none'"]
    assert policy["form-action"] == ["'self'"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] in ("no-store", "no-cache")


def check_content(shown: Shown) -> None:
    """Nothing that the policy would have to allow, and nothing from elsewhere."""
    for script in shown.tree.css("script"):
        assert script.attributes.get("src"), "no script stands in a page"
        assert script.text().strip() == ""
    assert shown.tree.css("style") == []
    for element in shown.tree.css("*"):
        odd = [name for name in element.attributes if name == "style" or name.startswith("on")]
        assert odd == [], element.html
    for selector, name in FETCHED:
        for address in shown.attributes(selector, name):
            assert address.startswith("/ui/static/"), address


def test_every_page_is_guarded_and_fetches_nothing_from_elsewhere(exhibit: Exhibit) -> None:
    for route in sorted(EVERY_PAGE - {"/ui/runs/{run_id}/events"}):
        shown = Shown(exhibit.pages.http.get(path_of(route, exhibit.acme)))
        assert shown.status in (200, 307)
        check_headers(shown)
        assert shown.answer.headers["cache-control"] == "no-store", route
        if shown.answer.headers.get("content-type", "").startswith("text/html"):
            check_content(shown)


@pytest.mark.parametrize("path", ERRORS)
def test_pages_that_tell_of_an_error_are_guarded(exhibit: Exhibit, path: str) -> None:
    shown = Shown(exhibit.pages.http.get(path))

    assert shown.status in (404, 422)
    check_headers(shown)
    check_content(shown)
    assert shown.texts("h1")
    assert shown.links()


def test_refusals_and_redirects_are_guarded(exhibit: Exhibit) -> None:
    pages, guarded = exhibit.pages, exhibit.guarded
    check_headers(pages.send_raw("/ui/tenant", {"tenant": "x"}, 403))
    check_headers(pages.send_raw("/ui/tenant", {"tenant": "x" * 100_000}, 413))
    check_headers(pages.look("/ui/runs", 403, headers={"Host": "evil.example"}))
    check_headers(Shown(pages.http.delete("/ui/runs")))
    check_headers(guarded.look("/ui/runs", 303))
    check_headers(guarded.send("/ui/login", 401, token="nonsense"))


def test_a_page_that_breaks_says_so_without_saying_what_and_is_guarded(
    exhibit: Exhibit, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Mock(side_effect=RuntimeError("the secret is 1234"))
    monkeypatch.setattr(Searcher, "search", broken)
    shown = exhibit.pages.look("/ui/search?q=mills", 500)

    check_headers(shown)
    check_content(shown)
    assert "1234" not in shown.html
    assert "log has the details" in shown.words


@pytest.mark.parametrize("name", ASSETS)
def test_assets_are_guarded_and_name_nothing_elsewhere(exhibit: Exhibit, name: str) -> None:
    shown = exhibit.pages.look(f"/ui/static/{name}")

    check_headers(shown)
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"')]*", shown.html))
    assert addresses <= {"http://www.w3.org/2000/svg"}, "the name of a language, not an address"
    assert "@import" not in shown.html
    assert "eval(" not in shown.html
    for address in re.findall(r"url\(([^)]*)\)", shown.html):
        assert address.strip("'\"").startswith("/ui/static/")
    for module in re.findall(r'from "([^"]+)"', shown.html):
        assert module.removeprefix("./") in ASSETS


def test_raw_bytes_and_logs_are_files_to_keep_and_never_pages(exhibit: Exhibit) -> None:
    pages, acme = exhibit.pages, exhibit.acme
    raw = pages.look(f"/ui/documents/{acme.node_id}/raw").answer
    log = pages.look(f"/ui/runs/{acme.run_id}/log.txt").answer

    assert raw.headers["content-type"] == "application/octet-stream"
    assert log.headers["content-type"] == "text/plain; charset=utf-8"
    for answer in (raw, log):
        assert answer.headers["content-disposition"].startswith("attachment;")


def test_the_addresses_that_people_type_lead_to_the_runs(exhibit: Exhibit) -> None:
    for path in ("/", "/ui", "/ui/"):
        answer = exhibit.pages.http.get(path)
        assert answer.status_code == 307
        assert answer.headers["location"] == "/ui/runs"
        assert str(answer.next_request and answer.next_request.url).startswith(HOST)


def test_the_api_beside_the_pages_is_as_it_was(exhibit: Exhibit) -> None:
    pages: Pages = exhibit.pages
    assert pages.http.get("/health").json()["status"] == "healthy"
    assert pages.http.get("/runs").status_code == 200
    assert not any(path.startswith("/ui") for path in pages.web.openapi()["paths"])
