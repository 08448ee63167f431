"""Signing in with a token, and out again."""

import time
from http.cookies import SimpleCookie
from typing import Any

import pytest

from tests.contract.api.tokens import make_token
from tests.dashboard.pages import HOST, Exhibit, Pages

STRANGE_TARGETS = [
    "https://evil.example/",
    "//evil.example/",
    "/\\evil.example",
    "\\\\evil.example",
    "javascript:alert(1)",
    "evil.example",
    "",
    "/runs\r\nX-Evil: yes",
]


def cookies_of(pages: Pages, token: str) -> SimpleCookie:
    answer = pages.sign_in(token=token).answer
    jar = SimpleCookie()
    for one in answer.headers.get_list("set-cookie"):
        jar.load(one)
    return jar


def test_a_token_is_kept_where_no_script_and_no_other_site_can_use_it(guarded: Pages) -> None:
    token = make_token()

    session = cookies_of(guarded, token)["penstock_session"]

    assert session.value == token
    assert session["httponly"]
    assert session["samesite"].lower() == "lax"
    assert session["path"] == "/ui"
    assert 0 < int(session["max-age"]) <= 60, "no longer than the token is good"


def test_the_cookie_of_an_encrypted_connection_is_never_sent_over_another(guarded: Pages) -> None:
    guarded.http.base_url = HOST.replace("http:", "https:")

    assert cookies_of(guarded, make_token())["penstock_session"]["secure"]


def test_whoever_signed_in_sees_the_pages_of_their_tenant(guarded: Pages) -> None:
    answer = guarded.sign_in("acme").answer

    assert answer.headers["location"] == "/ui/runs"
    shown = guarded.look("/ui/runs")
    assert "tenant acme" in shown.words
    assert "Sign out" in shown.words


def test_a_token_that_no_browser_would_keep_is_refused_with_the_reason(guarded: Pages) -> None:
    shown = guarded.send("/ui/login", 401, token=make_token("acme", note="x" * 5000))

    assert "fewer claims" in shown.words
    assert "penstock_session" not in guarded.http.cookies


def test_a_token_is_never_in_an_address_nor_on_a_page(guarded: Pages) -> None:
    token = make_token()
    assert guarded.look("/ui/login").attributes("form", "method") == ["post"]

    signed_in = guarded.sign_in(token=token)

    assert token not in signed_in.answer.headers["location"]
    for path in ("/ui/runs", "/ui/search", "/ui/queues", "/ui/cost", "/ui/login", "/ui/nothing"):
        assert token not in guarded.http.get(path).text
    guarded.http.cookies.clear()
    assert guarded.http.get("/ui/runs", params={"token": token}).status_code == 303


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"key": "another-secret-that-is-long-enough-012345"}, "not valid"),
        ({"exp": 1_700_000_000}, "expired"),
        ({"tenant": None}, "no valid tenant"),
        ({"algorithm": "HS512", "key": "x" * 64}, "signed with HS256"),
        ("nonsense", "not valid"),
        ("", "send a token"),
    ],
)
def test_a_token_that_is_not_good_is_refused_with_the_reason(
    guarded: Pages, claims: Any, reason: str
) -> None:
    token = claims if isinstance(claims, str) else make_token(**claims)

    shown = guarded.send("/ui/login", 401, token=token, next="/queues")

    (told,) = shown.texts("[role=alert]")
    assert reason in told
    assert shown.attributes("input[name=next]", "value") == ["/queues"]
    assert "penstock_session" not in guarded.http.cookies
    assert not token or token not in shown.html


def test_a_token_may_be_pasted_with_the_word_before_it(guarded: Pages) -> None:
    guarded.send("/ui/login", token=f" Bearer {make_token()} ")

    assert guarded.look("/ui/runs")


def test_strangers_are_asked_to_sign_in_and_come_back_to_where_they_wanted_to_go(
    guarded: Pages,
) -> None:
    sent = guarded.http.get("/ui/search", params={"q": "sluice gates", "mode": "text"})
    assert sent.status_code == 303
    assert sent.headers["location"].startswith("/ui/login?next=")

    form = guarded.look(sent.headers["location"])
    (wanted,) = form.attributes("input[name=next]", "value")
    answer = guarded.send("/ui/login", token=make_token(), next=wanted).answer

    assert answer.headers["location"] == "/ui/search?q=sluice+gates&mode=text"
    assert guarded.look(answer.headers["location"]).attributes("#q", "value") == ["sluice gates"]


@pytest.mark.parametrize("target", STRANGE_TARGETS)
def test_signing_in_never_leads_to_another_site(guarded: Pages, target: str) -> None:
    form = guarded.look("/ui/login", params={"next": target})
    (kept,) = form.attributes("input[name=next]", "value")
    assert kept.startswith("/")

    answer = guarded.send("/ui/login", token=make_token(), next=target).answer

    assert answer.headers["location"].startswith("/ui/")
    assert "x-evil" not in answer.headers
    assert answer.next_request is not None
    assert answer.next_request.url.host == "127.0.0.1"


def test_an_expired_session_leads_to_the_sign_in(guarded: Pages) -> None:
    guarded.http.cookies.set(
        "penstock_session", make_token(exp=int(time.time()) - 1), path="/ui", domain="127.0.0.1"
    )

    assert guarded.http.get("/ui/runs").headers["location"] == "/ui/login?next=/runs"
    assert guarded.http.get("/ui/runs/table").status_code == 303


def test_whoever_signs_out_is_a_stranger_again(guarded: Pages) -> None:
    guarded.sign_in()
    assert guarded.look("/ui/runs")

    guarded.send("/ui/logout")

    assert "penstock_session" not in guarded.http.cookies
    assert "Signed out." in guarded.look("/ui/login").words
    assert "Signed out." not in guarded.look("/ui/login").words, "it is said once"
    assert guarded.http.get("/ui/runs").status_code == 303


def test_the_cookie_opens_the_pages_and_not_the_api(guarded: Pages) -> None:
    guarded.sign_in()
    token = guarded.http.cookies["penstock_session"]

    by_cookie = guarded.http.get("/runs", headers={"Cookie": f"penstock_session={token}"})
    by_header = guarded.http.get("/runs", headers={"Authorization": f"Bearer {token}"})

    assert (by_cookie.status_code, by_header.status_code) == (401, 200)


@pytest.mark.parametrize("other", ['prefs={"a": 1}', "=;;=", "a b=c d", "x=\xff", 'q="'])
def test_odd_cookies_of_other_programs_at_this_machine_do_no_harm(
    guarded: Pages, other: str
) -> None:
    cookie = f"{other}; penstock_session={make_token()}; {other}".encode("latin-1")

    answer = guarded.http.get("/ui/runs", headers=[(b"Cookie", cookie)])

    assert answer.status_code == 200


def test_without_tokens_there_is_nothing_to_sign_in_to(exhibit: Exhibit) -> None:
    pages = exhibit.pages
    assert "Sign out" not in pages.look("/ui/runs").words

    answer = pages.send("/ui/login", token="whatever", next="/queues").answer

    assert answer.headers["location"] == "/ui/queues"
    assert "penstock_session" not in pages.http.cookies
