"""The reference pages are written from the code, and current."""

import os
from pathlib import Path

import pytest

from entrypoints.reference import write_pages
from entrypoints.reference.commands_page import list_commands
from entrypoints.reference.settings_page import write_settings_page
from penstock.settings import known_names

PAGES = write_pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_as_the_code_has_it(path: Path) -> None:
    found = path.read_text(encoding="utf-8") if path.exists() else ""

    assert found == PAGES[path], f"docs/reference/{path.name} is not current: run `make reference`"


def test_every_setting_is_told_in_a_group_of_its_own() -> None:
    page = write_settings_page()

    assert [name for name in known_names() if f"`{name}`" not in page] == []
    assert "\n## Others\n" not in page, "name its group in entrypoints/reference/settings_page.py"


def test_the_page_is_the_same_in_any_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    here = write_settings_page()
    monkeypatch.setenv("PENSTOCK_HOME", "/somewhere/else")
    monkeypatch.setenv("PENSTOCK_DSN", "postgresql://ada:secret@db/ours")
    monkeypatch.setattr(os, "cpu_count", lambda: 97)

    assert write_settings_page() == here
    assert "97" not in here


def test_secrets_are_marked() -> None:
    page = write_settings_page()

    for name in ("ACTIVEKG_DSN", "REDIS_URL", "GROQ_API_KEY", "PENSTOCK_API_JWT_SECRET"):
        assert f"`{name}` 🔒" in page
    assert "`PENSTOCK_HOME` |" in page


def test_every_command_is_told() -> None:
    paths = [path for path, _ in list_commands()]

    assert {"penstock ingest", "penstock runs", "penstock runs abort", "penstock up"} <= {*paths}
    assert "penstock jobs" not in paths, "it does nothing by itself"
