"""Whatever documents hold, pages show it as text."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from penstock.store.database import Database
from penstock.store.schema import nodes, runs, work_items
from tests.contract.ingestion import make_text
from tests.dashboard.furnishing import Furnished, Workshop
from tests.dashboard.pages import Pages, Shown
from tests.dashboard.test_security_headers import check_content

EVIL = "<img src=x onerror=alert(1)>"
MORE = "\"'><script>alert(2)</script>{{7*7}}</title><svg onload=alert(3)>"
SCRIPTS = ["javascript:alert(1)", " JaVaScRiPt:alert(1)", "data:text/html,<script>x</script>"]


@pytest.fixture
def hostile(database: Database, tmp_path: Path) -> Iterator[Workshop]:
    with closing(Workshop(database, tmp_path / "home", "acme", f"{EVIL} source")) as shop:
        shop.write("evil.txt", make_text(f"{EVIL} {MORE}", f"turbines {EVIL}"))
        shop.write(f"{EVIL[:-1].replace('/', '')}{{{{7*7}}}}.txt", make_text("named", "mills"))
        shop.write("bad.txt", make_text("bad", "unreadable"))
        shop.steps.on(
            Stage.TEXT, "unreadable", Fault(ErrorClass.CORRUPTION, f"cannot read {EVIL}{MORE}")
        )
        shop.steps.fields = {
            f"{EVIL}name": f"{EVIL}value",
            "list": [EVIL, {MORE: [EVIL, None, True]}],
            "primary_skills": [EVIL],
        }
        yield shop


@pytest.fixture
def room(hostile: Workshop) -> Furnished:
    run_id = hostile.ingest().run.id
    hostile.extract_again("evil.txt", **{f"{MORE}": EVIL, "list": [MORE]})
    hostile.say(run_id, EVIL, MORE)
    node = hostile.node_named("evil.txt")
    return Furnished(
        hostile,
        run_id,
        run_id,
        node.id,
        hostile.get_stuck("evil.txt"),
        hostile.job_of("bad.txt"),
        "turbines",
    )


def check_harmless(shown: Shown) -> None:
    check_content(shown)
    assert shown.tree.css("img, iframe, object, embed, svg[onload], main title:not(svg *)") == []
    for name in ("href", "action", "formaction"):
        for address in shown.attributes(f"[{name}]", name):
            assert not address.strip().lower().startswith(("javascript:", "data:")), address
    assert "49" not in shown.texts("h1") + shown.texts("h2"), "templates are not run twice"


def test_texts_names_fields_and_errors_are_shown_as_text(pages: Pages, room: Furnished) -> None:
    paths = (
        "/ui/runs",
        f"/ui/runs/{room.run_id}",
        f"/ui/runs/{room.run_id}?text=%3Cimg&error_class=%3Cb%3E",
        f"/ui/documents/{room.node_id}",
        "/ui/search?q=turbines",
        "/ui/search?q=%3Cscript%3Ealert(1)%3C/script%3E&skill=%22%3E%3Cimg%3E&source=%3Cb%3E",
        "/ui/queues",
        "/ui/cost",
        "/ui/login?next=/%22%3E%3Cscript%3E",
    )
    for path in paths:
        check_harmless(pages.look(path))
    document = pages.look(f"/ui/documents/{room.node_id}")
    assert document.texts("h1")[0].startswith(EVIL)
    assert EVIL in document.words
    assert f"{EVIL} source" in pages.look("/ui/runs").words
    run = pages.look(f"/ui/runs/{room.run_id}")
    assert f"cannot read {EVIL}" in run.words
    assert EVIL[:-1] in run.words


def test_snippets_mark_the_hits_and_nothing_else(pages: Pages, room: Furnished) -> None:
    shown = pages.look(f"/ui/search?q={room.words}&mode=text")

    assert set(shown.texts(".hits mark")) == {"turbines"}
    (snippet,) = [one for one in shown.texts(".hits p") if "turbines" in one]
    assert EVIL in snippet


@pytest.mark.parametrize("url", SCRIPTS)
def test_an_address_that_would_run_a_script_is_no_link(
    pages: Pages, room: Furnished, url: str
) -> None:
    with room.workshop.database.write() as tx:
        tx.execute(sa.update(nodes).where(nodes.c.id == room.node_id).values(url=url))

    shown = pages.look(f"/ui/documents/{room.node_id}")

    check_harmless(shown)
    assert url.strip() in shown.words


def test_an_address_of_the_web_is_a_link_that_tells_nothing_of_us(
    pages: Pages, room: Furnished
) -> None:
    url = 'https://acme.example/a?b="><script>'
    with room.workshop.database.write() as tx:
        tx.execute(sa.update(nodes).where(nodes.c.id == room.node_id).values(url=url))

    shown = pages.look(f"/ui/documents/{room.node_id}")

    assert shown.attributes("main a[href^=https]", "href") == [url]
    assert shown.attributes("main a[href^=https]", "rel") == ["noreferrer noopener"]


def test_errors_and_reasons_of_runs_jobs_and_workers_are_text(
    pages: Pages, room: Furnished
) -> None:
    with room.workshop.database.write() as tx:
        tx.execute(sa.update(runs).values(error=EVIL, paused_reason=MORE))
        tx.execute(sa.update(work_items).values(error_message=EVIL, lease_owner=MORE))
        tx.execute(sa.update(nodes).values(extraction_error=EVIL, embedding_error=MORE))

    for path in ("/ui/runs", f"/ui/runs/{room.run_id}", "/ui/queues"):
        check_harmless(pages.look(path))
    check_harmless(pages.look(f"/ui/documents/{room.node_id}"))


def test_what_somebody_typed_comes_back_as_text_in_errors(pages: Pages) -> None:
    for path in ("/ui/runs/%3Cimg%20src=x%3E", "/ui/documents/%3Cimg%20src=x%3E", "/ui/%3Cimg%3E"):
        shown = Shown(pages.http.get(path))
        assert shown.status in (404, 422)
        check_harmless(shown)
    check_harmless(pages.send("/ui/runs", 400, source=EVIL))


def test_a_tenant_of_any_name_is_shown_as_text(pages: Pages, room: Furnished) -> None:
    pages.use_tenant(MORE)

    check_harmless(pages.look("/ui/runs"))
    assert room.workshop.source not in pages.look("/ui/runs").words


def test_lines_of_a_log_are_data_and_no_page(pages: Pages, room: Furnished) -> None:
    answer = pages.look(f"/ui/runs/{room.run_id}/lines").answer

    assert answer.headers["content-type"] == "application/json"
    assert EVIL in [line["message"] for line in answer.json()["lines"]]
