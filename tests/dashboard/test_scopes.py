"""Whoever may only read sees everything and changes nothing."""

import pytest

from tests.contract.api.tokens import EVERY_SCOPE
from tests.dashboard.pages import Exhibit
from tests.dashboard.routes import CHANGES, fields_of, path_of

LOOKED_AT = (
    "/ui/runs",
    "/ui/runs/{run_id}",
    "/ui/documents/{node_id}",
    "/ui/queues",
    "/ui/cost",
    "/ui/search?q=turbines",
)


@pytest.mark.parametrize("scopes", [["kg:read"], ["kg:read", "admin:refresh"]])
def test_readers_look_at_everything_and_are_offered_no_change(
    exhibit: Exhibit, scopes: list[str]
) -> None:
    guarded, acme = exhibit.guarded, exhibit.acme
    guarded.sign_in("acme", *scopes)

    for route in LOOKED_AT:
        offered = set(guarded.look(path_of(route, acme)).posts()) - {"/ui/logout"}
        may_replay = "admin:refresh" in scopes and route == "/ui/queues"
        assert offered == ({"/ui/queues/dead-letters"} if may_replay else set()), route


@pytest.mark.parametrize("route", sorted(CHANGES))
def test_readers_change_nothing(exhibit: Exhibit, route: str) -> None:
    guarded, acme = exhibit.guarded, exhibit.acme
    guarded.sign_in("acme", "kg:read")
    before = guarded.everything()

    shown = guarded.send(path_of(route, acme), 403, **fields_of(route, acme))

    assert "lacks the scope" in shown.words
    assert "Sign in" in shown.words
    assert guarded.everything() == before


def test_writers_are_offered_what_they_may_do(exhibit: Exhibit) -> None:
    guarded, acme = exhibit.guarded, exhibit.acme
    guarded.sign_in("acme", "kg:read", "kg:write")

    assert "/ui/queues/dead-letters" not in guarded.look("/ui/queues").posts()
    assert f"/ui/queues/jobs/{acme.stuck_job}/retry" in guarded.look("/ui/queues").posts()
    assert set(guarded.look(f"/ui/documents/{acme.node_id}").posts()) >= {
        f"/ui/documents/{acme.node_id}/refresh",
        f"/ui/documents/{acme.node_id}/delete",
    }
    assert "/ui/runs" in guarded.look("/ui/runs").posts()
    refused = guarded.send("/ui/queues/dead-letters", 403, stage="text")
    assert "admin:refresh" in refused.words


def test_without_the_scope_to_read_there_is_nothing_to_see(exhibit: Exhibit) -> None:
    guarded, acme = exhibit.guarded, exhibit.acme
    guarded.sign_in("acme", "kg:write", "admin:refresh")

    for route in LOOKED_AT:
        assert "kg:read" in guarded.look(path_of(route, acme), 403).words


def test_all_scopes_offer_all_changes(exhibit: Exhibit) -> None:
    guarded, acme = exhibit.guarded, exhibit.acme
    guarded.sign_in("acme", *EVERY_SCOPE)

    offered = {post for route in LOOKED_AT for post in guarded.look(path_of(route, acme)).posts()}

    ended = {path_of(route, acme) for route in CHANGES if not route.endswith("/abort")}
    assert offered >= ended
    active = f"/ui/runs/{acme.active_run_id}"
    assert f"{active}/abort" in guarded.look(active).posts()
