"""Without tokens only pages that were opened by this machine's address are shown: another site
whose name leads here learns nothing."""

import pytest

from tests.dashboard.pages import Exhibit, Pages
from tests.dashboard.routes import CHANGES, EVERY_PAGE, OPEN_PAGES, fields_of, path_of

OURS = ["127.0.0.1", "127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", "127.1.2.3"]
STRANGE = [
    "evil.example",
    "evil.example:8000",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "127.0.0.1@evil.example",
    "evil.example@127.0.0.1",
    "192.168.1.5:8000",
    "0.0.0.0",
    "[::ffff:10.0.0.1]",
    "[",
    "[x",
    "",
]


@pytest.mark.parametrize("host", OURS)
def test_pages_are_shown_at_the_addresses_of_this_machine(exhibit: Exhibit, host: str) -> None:
    assert exhibit.pages.look("/ui/runs", headers={"Host": host})


@pytest.mark.parametrize("host", STRANGE)
def test_pages_are_not_shown_under_a_strange_name(exhibit: Exhibit, host: str) -> None:
    pages, acme = exhibit.pages, exhibit.acme
    for route in sorted(EVERY_PAGE - OPEN_PAGES):
        shown = pages.look(path_of(route, acme), 403, headers={"Host": host})
        assert "use localhost" in shown.words
        assert "papers" not in shown.words


def test_nothing_is_changed_under_a_strange_name(exhibit: Exhibit) -> None:
    pages, acme = exhibit.pages, exhibit.acme
    secret = pages.csrf()
    before = pages.everything()

    for route in sorted(CHANGES | {"/ui/tenant"}):
        fields = {**fields_of(route, acme), "csrf": secret}
        pages.send_raw(path_of(route, acme), fields, 403, Host="evil.example")

    assert pages.everything() == before


def test_with_tokens_a_server_may_have_any_name(guarded: Pages) -> None:
    guarded.sign_in()
    session = guarded.http.cookies["penstock_session"]

    headers = {"Host": "penstock.example", "Cookie": f"penstock_session={session}"}

    assert guarded.look("/ui/runs", headers=headers)
