"""What the documentation names is there: commands, options, settings, modules, targets, links."""

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from entrypoints.reference.commands_page import list_commands
from penstock.settings import known_names
from tests.pages import ROOT, Page, list_pages, split_commands

COMMANDS = dict(list_commands())
# Numbers that a page leaves to its reader.
PLACEHOLDERS = {"RUN", "JOB", "ID", "SEQ", "…"}
_SETTING = re.compile(r"\b(?:PENSTOCK|EXTRACTION|EMBEDDING)_[A-Z0-9_]*[A-Z0-9]\b(?!_?…)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
# Examples of what is wrong.
NO_SETTINGS = {"PENSTOCK_LEASE_SECOND"}

every_page = pytest.mark.parametrize("page", list_pages(), ids=str)


def typed(page: Page) -> list[list[str]]:
    """Commands of blocks, and those named in the prose."""
    told = [found for found in page.inline() if re.match(r"(penstock [a-z-]|make [a-z])", found)]
    found = [words for line in [*page.lines(), *told] for words in split_commands(line)]
    return [[Path(program).name, *words] for program, *words in found]


def find_command(words: Sequence[str]) -> tuple[str, Any, list[str]]:
    """The longest known beginning of a command line, and what is left of it."""
    for length in (3, 2):
        path = " ".join(words[:length])
        if path in COMMANDS:
            return path, COMMANDS[path], list(words[length:])
    raise AssertionError(f"there is no such command: {' '.join(words)}")


def check_options(words: Sequence[str]) -> None:
    if {"--help", "--version"} & {*words} or " ".join(words[1:]) in ("jobs", "source"):
        return
    path, command, given = find_command(words)
    args = ["1" if word in PLACEHOLDERS else word for word in given]
    required = [one.name for one in command.params if one.required and one.nargs == 1]
    if required and not args:
        return  # a command that is only named
    command.make_context(path, args)


@every_page
def test_commands_and_their_options_exist(page: Page) -> None:
    for words in typed(page):
        if words[0] == "penstock" and "[OPTIONS]" not in words:
            check_options(words)


@every_page
def test_modules_and_targets_exist(page: Page) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for words in typed(page):
        if words[0] == "make":
            assert words[1] in targets, f"make {words[1]}"
        if words[:2] == ["python", "-m"]:
            assert importlib.util.find_spec(words[2]), f"python -m {words[2]}"


@every_page
def test_settings_exist(page: Page) -> None:
    named = {*_SETTING.findall(page.text)} - NO_SETTINGS

    assert sorted(named - {*known_names()}) == []


@every_page
def test_links_lead_somewhere(page: Page) -> None:
    for link in _LINK.findall(page.prose):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.path.parent / target).resolve() if target else page.path
        assert path.exists(), f"{page}: {link}"
        if anchor:
            assert anchor in Page(path).anchors(), f"{page}: {link}"


@every_page
def test_nothing_of_one_machine_is_named(page: Page) -> None:
    assert not re.search(r"/root/|/home/\w+/", page.text.replace("below `/root`", ""))


def test_every_how_to_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    pages = [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")]
    named = [path for path in pages if path.parent.name != "adr"]

    assert [str(path) for path in named if f"({path}" not in readme] == []


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("penstock doctor   # what is wrong", [["penstock", "doctor"]]),
        ("A=1 penstock up; penstock down", [["penstock", "up"], ["penstock", "down"]]),
        ("curl 'x?a=1&b=2' | grep y", [["curl", "x?a=1&b=2"], ["grep", "y"]]),
        ("EXTRACTION_VERSION=2  # only a setting", []),
        ("# a comment", []),
        ("penstock runs > runs.txt", [["penstock", "runs"]]),
    ],
)
def test_lines_are_split_into_commands(line: str, commands: list[list[str]]) -> None:
    assert split_commands(line) == commands


def test_an_option_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(Exception, match="--frobnicate"):
        check_options(["penstock", "jobs", "list", "--frobnicate"])
    with pytest.raises(AssertionError, match="no such command"):
        check_options(["penstock", "frobnicate"])
