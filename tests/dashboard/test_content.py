"""Pages with nothing to show, with all there is, and with more than fits on one."""

import pytest
import sqlalchemy as sa

from penstock.runs.run import Change, DocumentStatus
from penstock.store.schema import run_documents, work_items
from tests.dashboard.furnishing import BROKEN, Furnished, Workshop
from tests.dashboard.pages import HOST, Exhibit, Pages, Shown


def crawl(pages: Pages, start: str = "/ui/runs") -> dict[str, Shown]:
    """Every address that can be reached by links."""
    seen: dict[str, Shown] = {}
    waiting = [f"{HOST}{start}"]
    while waiting:
        address = waiting.pop()
        if address in seen:
            continue
        assert len(seen) < 500, "there is no end to it"
        seen[address] = Shown(pages.http.get(address))
        if address.startswith(f"{HOST}/ui/"):
            waiting += seen[address].links()
    return seen


def test_every_link_answers(exhibit: Exhibit) -> None:
    found = crawl(exhibit.pages)

    wrong = {address: shown.status for address, shown in found.items() if shown.status != 200}
    assert wrong == {}
    reached = {address.removeprefix(HOST).partition("?")[0] for address in found}
    assert reached >= {
        "/ui/runs",
        "/ui/search",
        "/ui/queues",
        "/ui/cost",
        "/docs",
        f"/ui/runs/{exhibit.acme.run_id}",
        f"/ui/runs/{exhibit.acme.run_id}/log.txt",
        f"/ui/documents/{exhibit.acme.node_id}",
        f"/ui/documents/{exhibit.acme.node_id}/raw",
    }
    assert not any("login" in address for address in found)


def test_forms_lead_to_where_something_answers(exhibit: Exhibit) -> None:
    pages = exhibit.pages
    known = pages.routes("POST")
    for shown in crawl(pages).values():
        for action in shown.posts():
            shape = action
            for number in (exhibit.acme.run_id, exhibit.acme.active_run_id):
                shape = shape.replace(f"/ui/runs/{number}/", "/ui/runs/{run_id}/")
            parts = shape.split("/")
            if parts[2] == "documents":
                parts[3] = "{node_id}"
            if parts[2:4] == ["queues", "jobs"]:
                parts[4] = "{job_id}"
            assert "/".join(parts) in known
        for form in shown.tree.css("form[method=post]"):
            assert form.css_first("input[name=csrf]") is not None


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("/ui/runs", "penstock ingest SOURCE"),
        ("/ui/runs?before=1", "No older runs"),
        ("/ui/search", "combines keyword and semantic search"),
        ("/ui/search?q=nothing+like+this&mode=text", "Try fewer words"),
        ("/ui/queues", "penstock worker"),
        ("/ui/queues", "No jobs in processing"),
        ("/ui/queues", "until they are replayed"),
        ("/ui/cost", "GROQ_API_KEY"),
    ],
)
def test_a_page_with_nothing_to_show_says_what_to_do(
    exhibit: Exhibit, path: str, advice: str
) -> None:
    exhibit.pages.use_tenant("nobody")
    exhibit.guarded.sign_in("nobody")

    shown = exhibit.guarded.look(path)

    assert advice in shown.words
    assert shown.texts("h1")


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/ui/nothing", 404, "Not found"),
        ("/ui/runs/99999", 404, "there is no run 99999"),
        ("/ui/documents/0190a1b2-0000-7000-8000-000000000000", 404, "there is no node"),
        ("/ui/documents/x/raw", 404, "is not a node id"),
        ("/ui/runs/x", 422, "integer"),
        ("/ui/runs/0", 422, "greater than"),
        ("/ui/runs/99999999999999999999", 422, "less than"),
        ("/ui/runs?before=x", 422, "integer"),
        ("/ui/cost?days=367", 422, "366"),
        ("/ui/search?q=a&years=many", 422, "pattern"),
        ("/ui/runs/1?status=odd", 422, "Input should be"),
    ],
)
def test_an_error_says_what_is_wrong_and_leads_back(
    exhibit: Exhibit, path: str, status: int, told: str
) -> None:
    shown = exhibit.pages.look(path, status)

    assert told in shown.words
    assert f"{HOST}/ui/runs" in shown.links()


@pytest.mark.both_databases
def test_a_run_without_documents_and_without_lines_is_shown(pages: Pages, acme: Furnished) -> None:
    shown = pages.look(f"/ui/runs/{acme.active_run_id}")

    assert "No documents yet" in shown.words
    assert "Abort" in shown.texts("button")
    empty = pages.look(f"/ui/runs/{acme.active_run_id}/lines", params={"stage": "EMB"})
    assert empty.answer.json()["lines"] == []


def test_a_run_tells_how_far_it_is_and_what_failed(exhibit: Exhibit) -> None:
    shown = exhibit.pages.look(f"/ui/runs/{exhibit.acme.run_id}")

    assert "finished" in shown.texts(".status")
    assert "corruption" in shown.texts("section[aria-label=Failures] th a")
    assert BROKEN in shown.words
    labels = shown.attributes("svg.bar", "aria-label")
    assert "5 ready 2 error" in [" ".join(one.split()) for one in labels]


def test_documents_of_a_run_are_filtered_by_the_form_of_the_page(exhibit: Exhibit) -> None:
    path = f"/ui/runs/{exhibit.acme.run_id}"

    def shown(**asked: str) -> list[str]:
        filled = {"change": "", "status": "", "text": "", **asked}
        found = exhibit.pages.look(path, params=filled)
        names = found.texts("div[aria-label='Documents of this run'] tbody td:first-child")
        assert bool(names) != ("No documents match this filter." in found.words)
        return names

    assert len(shown()) == 7
    assert shown(status="error") == ["bad.txt", "worse.txt"]
    assert shown(status="error", text="worse") == ["worse.txt"]
    assert shown(text="paper-1") == ["paper-1.txt"]
    assert shown(change="changed") == []
    assert shown(error_class="corruption", status="error") == ["bad.txt", "worse.txt"]


@pytest.mark.both_databases
def test_many_runs_are_shown_page_by_page(pages: Pages) -> None:
    for number in range(32):
        with_many = Workshop(pages.database, pages.settings.home, "acme", f"source {number}")
        with_many.open()
        with_many.close()

    newest = pages.look("/ui/runs")
    (older,) = [link for link in newest.links() if "before=" in link]
    rest = pages.look(older)

    numbers = newest.texts("tbody th[scope=row]") + rest.texts("tbody th[scope=row]")
    assert [int(one) for one in numbers] == list(range(32, 0, -1))
    table = newest.attributes("#runs", "data-source")[0]
    assert pages.look(table).texts("tbody th[scope=row]") == newest.texts("tbody th[scope=row]")


def test_many_documents_and_dead_letters_are_shown_page_by_page(
    pages: Pages, acme: Furnished
) -> None:
    with pages.database.write() as tx:
        line = {
            "run_id": acme.run_id,
            "status": DocumentStatus.READY,
            "change": Change.NEW,
            "updated_at": tx.now,
        }
        rows = [{**line, "external_id": f"many & {number:03}.txt"} for number in range(120)]
        tx.execute(sa.insert(run_documents), rows)
        dead = tx.execute(sa.select(work_items).where(work_items.c.id == acme.dead_job)).one()
        values = {name: value for name, value in dead._mapping.items() if name != "id"}
        tx.execute(sa.insert(work_items), [values for _ in range(120)])

    assert len(follow_pages(pages, f"/ui/runs/{acme.run_id}", "Next", "td.long:first-child")) == 127
    assert len(follow_pages(pages, "/ui/queues", "Older", "#letters-title ~ *, .long")) > 120


def follow_pages(pages: Pages, path: str, label: str, selector: str) -> list[str]:
    """What is shown on a page and on all that follow it."""
    found: list[str] = []
    while True:
        shown = pages.look(path)
        found += shown.texts(f"main {selector}")
        following = [one for one in shown.tree.css(".pages a") if one.text().strip() == label]
        if not following:
            return found
        path = str(following[0].attributes["href"]).partition("#")[0]


@pytest.mark.both_databases
def test_a_log_is_read_by_pages_filters_and_as_a_file(pages: Pages, acme: Furnished) -> None:
    acme.workshop.say_much(acme.active_run_id, 1000)
    path = f"/ui/runs/{acme.active_run_id}"

    last = pages.look(f"{path}/lines", params={"stage": ["TXT", "LLM"]}).answer.json()
    assert last["total"] == 400
    assert [one["message"] for one in last["lines"]][-1] == "line 998"
    errors = pages.look(f"{path}/lines", params={"level": "ERROR", "offset": 0}).answer.json()
    assert [one["message"] for one in errors["lines"]][:2] == ["line 9", "line 19"]
    whole = pages.look(f"{path}/log.txt").answer.text.splitlines()
    assert len(whole) == len(acme.workshop.log_of(acme.active_run_id))
    assert whole[-1].endswith("line 999")
    some = pages.look(f"{path}/log.txt", params={"text": "LINE 99", "level": "WARNING"})
    assert [one.rpartition("line ")[2] for one in some.html.splitlines()] == ["99", "998", "999"]
    assert "there is no stage" in pages.look(f"{path}/lines", 400, params={"stage": "X"}).words


def test_a_field_is_corrected_and_a_record_accepted_on_its_page(
    pages: Pages, acme: Furnished
) -> None:
    document = f"/ui/documents/{acme.node_id}"
    skills = "Sluices\r\nWeirs & <b>locks</b>"
    pages.send(f"{document}/fields", field="primary_skills", value=skills, reason="I know")
    shown = pages.look(document)
    assert "Sluices\nWeirs & <b>locks</b>" in [one.text() for one in shown.tree.css("textarea")]
    assert "corrected by local user" in shown.words
    assert "I know" in shown.words
    refused = pages.send(f"{document}/fields", 400, field="years_experience_total", value="soon")
    assert "as a number, or a range" in refused.words
    pages.send(f"{document}/accept")
    assert "Needs review" not in pages.look(document).words


def test_what_needs_review_is_listed_with_its_reasons_and_links(
    pages: Pages, acme: Furnished
) -> None:
    acme.workshop.write("vague.txt", "1234567890 " * 20)
    acme.workshop.ingest(profile="resume")
    shown = pages.look("/ui/review")
    node = acme.workshop.node_named("vague.txt")
    assert f"/ui/documents/{node.id}" in shown.attributes("tbody a", "href")
    assert "primary_skills is missing" in shown.words
    pages.send(f"/ui/documents/{node.id}/accept")
    left = pages.look("/ui/review").attributes("tbody a", "href")
    assert f"/ui/documents/{node.id}" not in left
    assert "Nothing needs review" in pages.look("/ui/review?profile=document").words
