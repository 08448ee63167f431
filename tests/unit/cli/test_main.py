"""The table of commands, and what the command line imports when it starts."""

import inspect
import subprocess
import sys

import pytest

from entrypoints.cli.main import COMMANDS, load_command

HEAVY = {"sqlalchemy", "fastapi", "prefect", "httpx", "numpy", "pydantic_settings"}
LIST_IMPORTS = """
import sys
from entrypoints.cli.main import app
try:
    app(sys.argv[1:])
finally:
    print("imported:", *sys.modules)
"""


def packages_imported_by(*arguments: str) -> set[str]:
    command = [sys.executable, "-c", LIST_IMPORTS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    modules = done.stdout.rpartition("imported:")[2].split()
    return {module.partition(".")[0] for module in modules}


@pytest.mark.full_suite
@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_import_no_heavy_library(option: str) -> None:
    found = packages_imported_by(option)

    assert "typer" in found
    assert not found & HEAVY


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_has_the_help_texts_of_the_commands(name: str) -> None:
    command = load_command(name)
    first_paragraph = inspect.cleandoc(command.help).partition("\n\n")[0]

    assert COMMANDS[name][1] == " ".join(first_paragraph.split())
    assert command.name == name
