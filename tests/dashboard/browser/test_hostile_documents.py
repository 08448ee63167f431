"""Documents that hold scripts are shown as text, and no script of theirs runs."""

from contextlib import closing

from playwright.sync_api import Page

from penstock.documents import Fault, Stage
from penstock.errors import ErrorClass
from tests.contract.ingestion import make_text
from tests.dashboard.browser.house import House
from tests.dashboard.browser.log_page import LogPage

EVIL = "<img src=x onerror=\"document.title='hacked'\">"
SCRIPT = "</script><script>document.title='hacked'</script>"


def check_harmless(page: Page) -> None:
    assert page.locator("img").count() == 0
    assert page.title() != "hacked"


def test_hostile_documents_are_text_on_every_page(page: Page, house: House) -> None:
    with closing(house.open_shop(f"{EVIL} source", tenant="hostile")) as shop:
        shop.write("evil.txt", make_text(f"{EVIL}{SCRIPT}", f"turbines {SCRIPT}"))
        shop.write("bad.txt", make_text("bad", "unreadable"))
        shop.steps.on(Stage.TEXT, "unreadable", Fault(ErrorClass.CORRUPTION, EVIL))
        shop.steps.fields = {EVIL: [EVIL, {SCRIPT: EVIL}]}
        run_id = shop.ingest().run.id
        shop.say(run_id, EVIL, SCRIPT)
        page.goto("/ui/runs")
        page.fill("#tenant", "hostile")
        page.press("#tenant", "Enter")
        page.wait_for_selector("text=Switched to tenant hostile.")
        assert EVIL in page.inner_text("#runs")
        for path in ("/ui/runs", "/ui/queues", f"/ui/search?q=turbines {SCRIPT}"):
            page.goto(path)
            page.wait_for_load_state("networkidle")
            check_harmless(page)
        page.goto(f"/ui/documents/{shop.node_named('evil.txt').id}")
        assert page.inner_text("h1").startswith(EVIL)
        check_harmless(page)
        log = LogPage(page, run_id).open()
        log.wait_for_line(EVIL)
        log.wait_for_line(SCRIPT)
        log.wait(lambda: page.inner_text("#connection") == "Run ended.", "the end")
        check_harmless(page)
        page.fill("#text", SCRIPT)
        log.wait(lambda: log.messages == [SCRIPT], "the filter")
        check_harmless(page)
