"""Nobody sees or changes what is another tenant's."""

from contextlib import closing
from pathlib import Path

import pytest

from penstock.store.database import Database
from tests.dashboard.furnishing import Furnished, furnish
from tests.dashboard.pages import Exhibit, Pages
from tests.dashboard.routes import (
    CHANGES,
    EVERY_PAGE,
    OF_ONE_DOCUMENT,
    OF_ONE_RUN,
    OVERVIEWS,
    fields_of,
    path_of,
)

# Those that name something by its number; the others can only mean one's own.
AIMED = sorted(route for route in CHANGES if "{" in route)


def test_every_page_is_known_to_these_tests(exhibit: Exhibit) -> None:
    assert exhibit.pages.routes("GET") == EVERY_PAGE


def test_what_belongs_to_another_tenant_is_not_there(exhibit: Exhibit) -> None:
    guarded, acme, globex = exhibit.guarded, exhibit.acme, exhibit.globex
    guarded.sign_in("globex")

    for route in sorted(OF_ONE_RUN | OF_ONE_DOCUMENT):
        shown = guarded.look(path_of(route, acme), 404)
        assert "there is no" in shown.words
        assert "acme" not in shown.words
    for route in sorted((OF_ONE_RUN - {"/ui/runs/{run_id}/events"}) | OF_ONE_DOCUMENT):
        assert guarded.look(path_of(route, globex)), "one's own is"


def test_overviews_show_nothing_of_another_tenant(exhibit: Exhibit) -> None:
    guarded, acme, globex = exhibit.guarded, exhibit.acme, exhibit.globex
    guarded.sign_in("globex")

    for path in [*sorted(OVERVIEWS), "/ui/search?q=turbines", "/ui/search?q=ada&mode=vector"]:
        shown = guarded.look(path)
        assert "acme" not in shown.words, path
        assert "acme" not in shown.attributes("option", "value")
        assert acme.node_id not in shown.html
        assert not any(other in shown.html for other in acme.others)
    assert globex.others[0] in guarded.look("/ui/search?q=turbines").html
    numbers = guarded.look("/ui/runs").texts("tbody th[scope=row]")
    assert numbers == [str(globex.active_run_id), str(globex.run_id)]


@pytest.mark.parametrize("route", AIMED)
def test_nothing_of_another_tenant_is_changed(exhibit: Exhibit, route: str) -> None:
    guarded, acme = exhibit.guarded, exhibit.acme
    guarded.sign_in("globex")
    before = guarded.everything()

    guarded.send(path_of(route, acme), 404, **fields_of(route, acme))

    assert guarded.everything() == before
    assert guarded.raw_files()


def test_dead_letters_of_another_tenant_are_not_replayed(exhibit: Exhibit) -> None:
    guarded, acme = exhibit.guarded, exhibit.acme
    guarded.sign_in("globex")
    before = guarded.everything()
    guarded.send("/ui/queues/dead-letters", stage="text", job=str(acme.dead_job))
    assert "0 dead letters" in guarded.look("/ui/queues").words
    assert guarded.everything() == before


def test_all_dead_letters_are_all_of_ones_own(
    pages: Pages, acme: Furnished, database: Database, tmp_path: Path
) -> None:
    pages.use_tenant("globex")
    with closing(furnish(database, tmp_path / "home", "globex")) as globex:
        pages.send("/ui/queues/dead-letters", stage="text")

        assert acme.workshop.job(acme.dead_job).status == "failed"
        assert globex.workshop.job(globex.dead_job).status == "pending"


def test_a_token_is_for_one_tenant_whatever_a_cookie_or_a_form_says(exhibit: Exhibit) -> None:
    guarded, acme, globex = exhibit.guarded, exhibit.acme, exhibit.globex
    guarded.sign_in("globex")
    guarded.http.cookies.set("penstock_tenant", "acme", path="/ui", domain="127.0.0.1")

    guarded.look(f"/ui/runs/{acme.run_id}", 404)
    assert guarded.look(f"/ui/runs/{globex.run_id}")
    assert "your token is for tenant globex" in guarded.send("/ui/tenant", 403, tenant="acme").words


def test_who_needs_no_token_looks_at_one_tenant_at_a_time(exhibit: Exhibit) -> None:
    pages, acme, globex = exhibit.pages, exhibit.acme, exhibit.globex
    assert pages.look(f"/ui/runs/{acme.run_id}")
    pages.look(f"/ui/runs/{globex.run_id}", 404)

    pages.use_tenant("globex")

    pages.look(f"/ui/runs/{acme.run_id}", 404)
    assert pages.look(f"/ui/runs/{globex.run_id}")
    shown = pages.look("/ui/runs")
    assert shown.attributes("#tenant", "value") == ["globex"]
    assert shown.attributes("#tenants option", "value") == ["acme", "globex"]


@pytest.mark.parametrize("name", ["", " ", "x" * 201])
def test_a_tenant_that_cannot_be_one_is_refused(exhibit: Exhibit, name: str) -> None:
    assert "name a tenant" in exhibit.pages.send("/ui/tenant", 400, tenant=name).words


def test_a_tenant_may_have_any_visible_name(exhibit: Exhibit) -> None:
    pages, name = exhibit.pages, 'Gießerei „Nord“; <b>"&'
    pages.use_tenant(name)

    shown = pages.look("/ui/runs")

    assert shown.attributes("#tenant", "value") == [name]
    assert shown.texts(".said") == [f"Switched to tenant {name}."]
