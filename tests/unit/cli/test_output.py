"""Titles and texts come from anybody: on a terminal they are read, and never obeyed."""

import io
import json
import logging
import re
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from entrypoints.cli import output
from entrypoints.cli.local_servers import explain_crash
from entrypoints.cli.output import SafeConsole, SafeFormatter, as_json
from penstock.terminal import as_text

OBEYED = [
    "\x1b]0;title\x07",
    "\x1b[2J",
    "\x9b2J",
    "\x9d0;x\x9c",
    "\x7f",
    "\u061c",
    "\u200e",
    "\u200f",
    "\u202e",
    "\u2066",
    "\x00",
]
TERMINAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What commands write to standard output."""
    written = io.StringIO()
    monkeypatch.setattr(output.console, "_file", written)
    monkeypatch.setattr(output.console, "_width", 80)
    return written


@pytest.mark.parametrize("evil", OBEYED)
def test_text_is_shown_and_not_obeyed(screen: io.StringIO, evil: str) -> None:
    text = f"before{evil}after"

    output.console.print(Text(text))
    output.console.print(text)
    output.print_table(["name"], [[text], [Text(text, style="bold")]])
    output.print_pairs([(text, text)])

    shown = screen.getvalue()
    assert TERMINAL.findall(shown) == []
    assert shown.count("before") == shown.count("after") == 6


def test_a_table_of_somebody_elses_making_is_not_obeyed_either(screen: io.StringIO) -> None:
    table = Table("name")
    table.add_row(Text("a\x1b[2Jb"))
    output.console.print(table)

    assert TERMINAL.findall(screen.getvalue()) == []


@pytest.mark.parametrize("name", ["[link=\x1b]0;x\x07]a[/link]", "[/bold]", "[red]a", "[1]"])
def test_text_is_not_read_as_markup(screen: io.StringIO, name: str) -> None:
    output.console.print(f"{name}: a site", highlight=False)

    assert screen.getvalue() == f"{as_text(Text(name).plain)}: a site\n"


def test_colours_and_lines_of_our_own_stay() -> None:
    screen = io.StringIO()
    SafeConsole(file=screen, force_terminal=True, color_system="standard").print(
        Text("one\ntwo\tthree", style="bold")
    )

    assert "\x1b[1m" in screen.getvalue()
    assert len(screen.getvalue().splitlines()) == 2


@pytest.mark.parametrize("evil", OBEYED)
def test_json_is_read_back_as_it_was(evil: str) -> None:
    written = as_json({"title": f"Überlauf {evil}"}, indent=2)

    assert TERMINAL.findall(written) == []
    assert "Überlauf" in written
    assert json.loads(written) == {"title": f"Überlauf {evil}"}


def test_log_lines_name_documents_without_obeying_them() -> None:
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "read %s", ("a\x1b[2Jb",), None)

    assert SafeFormatter("%(message)s").format(record) == "read a\ufffd[2Jb"


def test_a_crash_is_told_without_passwords_in_addresses(tmp_path: Path) -> None:
    error = RuntimeError("401 for url http://ops:hunter2@127.0.0.1:4200/api/version")
    told = explain_crash(tmp_path, "run 1", error)
    assert "hunter2" not in told
    assert "127.0.0.1:4200/api/version" in told
