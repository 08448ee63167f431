"""The Prefect server that we start lets in whoever knows its string, and no other site's page."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest
import websockets

from penstock.local.prefect_server import PrefectServer, ServerAddress
from tests.browser import open_browser, open_page

ELSEWHERE = "https://elsewhere.example"


@pytest.fixture
def auth_string(prefect_server: ServerAddress, prefect_home: Path) -> str:
    environment = PrefectServer(prefect_home).client_environment(prefect_server)
    return environment["PREFECT_API_AUTH_STRING"]


@pytest.mark.parametrize("path", ["/deployments/filter", "/flow_runs/filter", "/admin/settings"])
def test_nobody_is_let_in_without_the_string(prefect_server: ServerAddress, path: str) -> None:
    method = "GET" if path.startswith("/admin") else "POST"
    for auth in (None, ("penstock", "guessed"), ("", "")):
        refused = httpx.request(method, prefect_server.api_url + path, auth=auth, timeout=30)
        assert refused.status_code == 401, refused.text


def test_whoever_knows_the_string_is_let_in(
    prefect_server: ServerAddress, auth_string: str
) -> None:
    user, _, password = auth_string.partition(":")
    url = f"{prefect_server.api_url}/deployments/filter"
    assert httpx.post(url, json={}, auth=(user, password), timeout=30).status_code == 200


def test_its_string_is_in_a_file_for_its_owner_alone_and_nowhere_else(
    prefect_home: Path, auth_string: str
) -> None:
    path = prefect_home / "prefect.auth"
    assert path.read_text() == auth_string
    assert path.stat().st_mode & 0o777 == 0o600
    for name in ("server.log", "server.json"):
        assert auth_string.partition(":")[2] not in (prefect_home / "prefect" / name).read_text()


def test_events_are_told_to_nobody_without_the_string(
    prefect_server: ServerAddress, auth_string: str
) -> None:
    address = prefect_server.api_url.replace("http", "ws") + "/events/out"

    async def answer(token: str | None) -> str | None:
        try:
            async with websockets.connect(address, subprotocols=["prefect"]) as socket:  # type: ignore[list-item]
                await socket.send(json.dumps({"type": "auth", "token": token}))
                said: str = json.loads(await asyncio.wait_for(socket.recv(), 30))["type"]
                return said
        except websockets.ConnectionClosed:
            return None

    assert asyncio.run(answer(None)) is None
    assert asyncio.run(answer("guessed")) is None
    assert asyncio.run(answer(auth_string)) == "auth_success"


def test_pages_of_other_sites_are_allowed_nothing(prefect_server: ServerAddress) -> None:
    url = f"{prefect_server.api_url}/flow_runs/filter"
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type",
    }
    foreign = httpx.options(url, headers={"Origin": ELSEWHERE, **asked}, timeout=30)
    assert "access-control-allow-origin" not in foreign.headers
    assert foreign.status_code == 400
    own = httpx.options(url, headers={"Origin": prefect_server.ui_url, **asked}, timeout=30)
    assert own.headers["access-control-allow-origin"] == prefect_server.ui_url


def test_its_own_pages_ask_for_the_string(prefect_server: ServerAddress) -> None:
    assert httpx.get(f"{prefect_server.ui_url}/ui-settings", timeout=30).json()["auth"] == "BASIC"


def test_a_person_signs_in_on_its_pages(prefect_server: ServerAddress, auth_string: str) -> None:
    with open_browser() as browser, open_page(browser, "http://ours.invalid") as page:
        page.goto(prefect_server.ui_url)
        field = page.locator("input[type=password]")
        field.fill("guessed")
        field.press("Enter")
        page.get_by_text("Invalid credentials").first.wait_for()
        field.fill(auth_string)
        field.press("Enter")
        page.wait_for_url("**/dashboard?**")
        page.get_by_role("link", name="Deployments").first.wait_for()
        assert not field.is_visible()
