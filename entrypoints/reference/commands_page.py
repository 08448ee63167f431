"""`docs/reference/cli.md`: every command with its arguments and options, as Typer knows them."""

import re
from collections.abc import Iterator
from typing import Any

import typer

from entrypoints.cli.main import COMMANDS, load_command
from entrypoints.reference.markdown import NOTE, code, page, table

INTRODUCTION = """
Every command has `--help` with the same text. Most have `--json`, for programs.
Exit codes: 0 done, 1 not done, 2 wrong use, 130 interrupted.
"""
# The largest id of the database says nothing to a reader.
_NO_LIMIT = re.compile(r"(\d+)<=x<=9223372036854775807")
_KIND = re.compile(r" <(?P<many>list\[)?(?P<kind>[^<>\]]+)\]?>$")
_KINDS = {"str": "TEXT", "path": "PATH", "int": "NUMBER", "float": "NUMBER"}


def write_commands_page() -> str:
    """The page as it should be."""
    lines = [NOTE, "# Commands", INTRODUCTION]
    for path, command in list_commands():
        lines += [f"## {path}", "", *_describe(path, command), ""]
    return page(lines)


def list_commands() -> Iterator[tuple[str, Any]]:
    """Every command that can be typed, in the order of `--help`, with Typer's idea of it."""
    for name in COMMANDS:
        yield from _below(f"penstock {name}", load_command(name))


def _below(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", {})
    if not inner or command.invoke_without_command:
        yield path, command
    for name, one in inner.items():
        yield from _below(f"{path} {name}", one)


def _describe(path: str, command: Any) -> Iterator[str]:
    context = typer.Context(command, info_name=path)
    pieces = [re.sub(r"[{}]|\.\.\.", "", one) for one in command.collect_usage_pieces(context)]
    yield code(" ".join([path, *pieces]))
    yield ""
    yield " ".join((command.help or "").split())
    rows = [_row(*parameter.get_help_record(context)) for parameter in command.params]
    if rows:
        yield ""
        yield from table(("argument or option", "what it does"), rows)


def _row(declared: str, text: str) -> tuple[str, str]:
    """How it is typed, and what Typer's help says of it."""
    words = _NO_LIMIT.sub(r"x>=\1", text).replace("  [", " [")
    words = words.replace("<", "&lt;").replace(">", "&gt;")
    if (found := _KIND.search(declared)) is None:
        return code(declared), words
    name = declared[: found.start()]
    if not name.startswith("-"):
        return code(name.removesuffix("...")), words
    kind = found["kind"].removesuffix(" range")
    repeated = " May be given several times." if found["many"] and "several" not in words else ""
    return code(f"{name} {_KINDS.get(kind, kind)}"), words + repeated
