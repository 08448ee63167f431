"""`penstock migrate`: the database gets the schema of this version."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from entrypoints.cli.output import Json, console, print_json
from penstock.errors import UsageError
from penstock.settings import Settings, load_settings, mask_url
from penstock.store import migration
from penstock.store.database import Database


@contextmanager
def opened_database(settings: Settings) -> Iterator[Database]:
    """The database as it is, whatever its schema."""
    database = Database(settings.database_url)
    try:
        yield database
    finally:
        database.close()


def migrate(
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing; exit with 1 if there is something to do."),
    ] = False,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for workers to end.")] = 0.0,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Migrate while workers run. Those of an older version end with an error; "
            "their jobs stay.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Bring the database to the schema of this version, when no worker uses it.

    A worker uses it if its last heartbeat is not older than a lease.
    """
    if force and (check or wait):
        raise UsageError("--force does not go with --check or --wait: choose one of them")
    settings = load_settings()
    with opened_database(settings) as database:
        found = _describe(database)
        if not check:
            _run(database, settings, wait, force)
            found["migrated"] = bool(found["revisions"])
    if json:
        print_json(found)
    else:
        _print(found)
    raise typer.Exit(1 if check and found["revisions"] else 0)


def _describe(database: Database) -> dict[str, Any]:
    pending = migration.pending_revisions(database)
    return {
        "database": mask_url(database.url),
        "from": migration.current_revision(database),
        "to": migration.HEAD,
        "revisions": [{"id": one.id, "what": one.what} for one in pending],
        "migrated": False,
    }


def _run(database: Database, settings: Settings, wait: float, force: bool) -> None:
    if force:
        migration.migrate(database)
    else:
        migration.migrate_when_idle(
            database, lease_seconds=settings.lease_seconds, wait_seconds=wait
        )


def _print(found: dict[str, Any]) -> None:
    where, steps = found["database"], found["revisions"]
    if not steps:
        lines = [f"{where} is at revision {found['to']}, which this version needs: nothing to do"]
    else:
        verb = "was migrated" if found["migrated"] else "is to be migrated"
        lines = [f"{where} {verb} from revision {found['from'] or 'none'} to {found['to']}:"]
        lines += [f"  {one['id']}  {one['what']}" for one in steps]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
