"""`penstock move`: everything in the database goes to another one."""

import time
from pathlib import Path
from typing import Annotated, Any

import sqlalchemy as sa
import typer
from pydantic import SecretStr
from sqlalchemy.exc import ArgumentError

from entrypoints.cli.output import Json, console, print_json, print_pairs
from entrypoints.cli.progress import shown_move
from penstock.errors import UsageError
from penstock.local.joining import installation_home
from penstock.search.vectors import ensure_index
from penstock.settings import Settings, load_settings, mask_url
from penstock.store.database import Database
from penstock.store.move import move_database


def move(
    to: Annotated[
        str,
        typer.Option("--to", help="An empty database: postgresql://user:password@host/name"),
    ],
    json: Json = False,
) -> None:
    """Copy everything in the database to another, empty one: from SQLite to Postgres.

    Stop what works on it first. The old database is only read, and stays as it is.
    """
    settings = load_settings()
    source, target = Database(_source_url(settings)), Database(_target_url(settings, to))
    began = time.monotonic()
    try:
        with shown_move() as report:
            moved = move_database(source, target, ensure_index, report)
    finally:
        source.close()
        target.close()
    found = {
        "from": mask_url(source.url),
        "to": mask_url(to),
        "rows": sum(moved.values()),
        "tables": moved,
        "seconds": round(time.monotonic() - began, 3),
        "next": _next_step(settings, target.url, to),
    }
    if json:
        print_json(found)
    else:
        _print(found)


def _source_url(settings: Settings) -> str:
    path = sa.make_url(settings.database_url).database
    if settings.database_url.startswith("sqlite") and not Path(path or "").is_file():
        # Opening it would make one.
        raise UsageError(
            f"there is nothing to move, {settings.database_url} does not exist: to begin with "
            "another database, set PENSTOCK_DSN to its address"
        )
    return settings.database_url


def _target_url(settings: Settings, to: str) -> str:
    url = settings.model_copy(update={"dsn": SecretStr(to)}).database_url
    try:
        known = sa.make_url(url).get_backend_name() in ("postgresql", "sqlite")
    except ArgumentError:
        known = False
    if not known:
        raise UsageError(
            f"--to {mask_url(to)} is not the address of a database: "
            "write postgresql://user:password@host/name"
        )
    return url


def _next_step(settings: Settings, target_url: str, to: str) -> str:
    running = installation_home(settings).find()
    if running is not None and dict(running.environment).get("PENSTOCK_DSN") == target_url:
        # Its port may be another one the next time.
        return "no setting needed: commands of this home use the Postgres of `penstock up`"
    shown = mask_url(to)
    password = ", with the real password instead of the stars" if shown != to else ""
    return f"set PENSTOCK_DSN={shown} for every program, or in .env{password}"


def _print(found: dict[str, Any]) -> None:
    print_pairs((name, count) for name, count in found["tables"].items() if count)
    lines = (
        f"all {found['rows']} rows are in {found['to']}, counted in both, "
        f"after {found['seconds']:.1f} s",
        f"The old one, {found['from']}, is unchanged.",
        "",
        f"Next: {found['next']}",
    )
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
