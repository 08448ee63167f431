"""Who looks, and at whose documents: tokens, tenants, zones of time."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, Page

from tests.browser import open_page
from tests.contract.api.tokens import make_token
from tests.dashboard.browser.house import House


@pytest.fixture
def stranger(browser: Browser, house: House) -> Iterator[Page]:
    with open_page(browser, house.guarded.address) as page:
        yield page


def sign_in(page: Page, token: str) -> None:
    page.fill("#token", token)
    page.click("button:has-text('Sign in')")


def test_signing_in_and_out_by_the_form(stranger: Page, house: House) -> None:
    wanted = f"/ui/runs/{house.globex.run_id}"
    stranger.goto(wanted)
    assert stranger.url.endswith(f"/ui/login?next=/runs/{house.globex.run_id}")
    assert stranger.evaluate("() => document.activeElement.id") == "token"
    sign_in(stranger, "nonsense")
    stranger.wait_for_selector("[role=alert]")
    assert "not valid" in stranger.inner_text("[role=alert]")

    sign_in(stranger, make_token("globex"))

    stranger.wait_for_url(f"**{wanted}")
    assert "globex" in stranger.inner_text(".who")
    assert stranger.evaluate("() => document.cookie") == "", "no script can read it"
    assert "eyJ" not in stranger.url + stranger.content()
    stranger.click("text=Sign out")
    stranger.wait_for_selector("text=Signed out.")
    stranger.goto("/ui/runs")
    assert "/ui/login" in stranger.url


def test_a_tenant_sees_its_own_and_nothing_else(stranger: Page, house: House) -> None:
    stranger.goto("/ui/login")
    sign_in(stranger, make_token("globex"))
    stranger.wait_for_url("**/ui/runs")
    shown = stranger.locator("#runs tbody th").all_inner_texts()
    assert set(shown) == {str(house.globex.run_id), str(house.globex.active_run_id)}

    for path in (f"/ui/runs/{house.acme.run_id}", f"/ui/documents/{house.acme.node_id}"):
        answer = stranger.goto(path)
        assert answer is not None
        assert answer.status == 404
        assert "Not found" in stranger.inner_text("h1")
    stranger.goto("/ui/search?q=turbines")
    titles = stranger.locator(".hits h2").all_inner_texts()
    assert titles
    assert not any("default" in one for one in titles)
    log = f"/ui/runs/{house.acme.run_id}/events"
    assert stranger.evaluate("(path) => fetch(path).then((a) => a.status)", log) == 404


def test_readers_are_offered_nothing_that_they_may_not_do(stranger: Page, house: House) -> None:
    stranger.goto("/ui/login")
    sign_in(stranger, make_token("globex", ["kg:read"]))
    stranger.wait_for_url("**/ui/runs")

    for path in ("/ui/queues", f"/ui/documents/{house.globex.node_id}", "/ui/runs"):
        stranger.goto(path)
        assert stranger.locator("main form[method=post]").count() == 0


def test_without_tokens_one_changes_the_tenant_by_its_name(page: Page, house: House) -> None:
    page.goto("/ui/runs")
    assert page.input_value("#tenant") == "default"
    page.fill("#tenant", "globex")
    page.press("#tenant", "Enter")
    page.wait_for_selector("text=Switched to tenant globex.")

    assert str(house.globex.run_id) in page.locator("#runs tbody th").all_inner_texts()
    assert str(house.acme.run_id) not in page.locator("#runs tbody th").all_inner_texts()
    page.reload()
    assert page.input_value("#tenant") == "globex"
    assert page.locator(".said").count() == 0


def test_times_are_in_the_readers_zone_with_utc_at_hand(browser: Browser, house: House) -> None:
    with open_page(browser, house.free.address, timezone_id="Asia/Tokyo", locale="en-GB") as page:
        page.goto(f"/ui/runs/{house.acme.run_id}")
        shown = page.locator("time").first
        moment = datetime.fromisoformat(str(shown.get_attribute("datetime"))).astimezone(UTC)
        tokyo = moment.replace(hour=(moment.hour + 9) % 24)

        assert f"{tokyo:%H:%M:%S}" in shown.inner_text()
        assert shown.get_attribute("title") == f"{moment:%Y-%m-%d %H:%M:%S} UTC"
        page.wait_for_selector(".line[data-seq]")
        line = page.locator(".line[data-seq]").last
        at = datetime.fromisoformat(str(line.get_attribute("title")).split()[0]).astimezone(UTC)
        assert f"{(at.hour + 9) % 24:02}:{at:%M:%S}" in line.inner_text()


def test_the_table_of_runs_moves_by_itself_while_a_run_is_active(page: Page, house: House) -> None:
    shop = house.open_shop("moving", tenant="movers")
    shop.open()
    page.goto("/ui/runs")
    page.fill("#tenant", "movers")
    page.press("#tenant", "Enter")
    page.wait_for_selector("text=Switched to tenant movers.")
    assert page.locator("#runs tbody tr").count() == 1

    other = house.open_shop("another", tenant="movers")
    other.open()

    page.wait_for_selector("#runs tbody tr:nth-child(2)")
    assert "UTC" not in page.locator("#runs time").first.inner_text()
    for one in (shop, other):
        one.close()


def test_whoever_looks_when_the_token_ends_is_asked_to_sign_in_again(
    stranger: Page, house: House
) -> None:
    run = f"/ui/runs/{house.globex.active_run_id}"
    stranger.goto(f"/ui/login?next=/runs/{house.globex.active_run_id}")
    sign_in(stranger, make_token("globex", exp=int(time.time()) + 12))
    stranger.wait_for_url(f"**{run}")

    stranger.get_by_role("link", name="sign in again").click()

    stranger.wait_for_url(f"**/ui/login?next=/runs/{house.globex.active_run_id}")
