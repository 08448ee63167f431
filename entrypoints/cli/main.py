"""The command `penstock`: its commands, and how their errors are shown."""

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from entrypoints.cli.interrupts import deliver_interrupt_again
from entrypoints.cli.output import print_error, print_json
from penstock import __version__
from penstock.errors import PenstockError, UsageError

# Each command: where it is, and its line in `penstock --help`. A module is imported when one of its
# commands is called, since together they take a second of CPU time.
COMMANDS = {
    "ingest": (
        "entrypoints.cli.ingest:ingest",
        "Crawl, extract, embed and index sources. Unchanged documents are skipped.",
    ),
    "resume": (
        "entrypoints.cli.ingest:resume",
        "Resume a paused or interrupted run where it stopped.",
    ),
    "search": (
        "entrypoints.cli.documents:search",
        "Search documents by keyword, by meaning, or both.",
    ),
    "show": (
        "entrypoints.cli.documents:show",
        "Show one document: its text, fields and extraction details.",
    ),
    "nodes": ("entrypoints.cli.documents:nodes", "List documents, oldest first."),
    "review": (
        "entrypoints.cli.review:review",
        "Go through what needs review, most valuable first: accept, correct or skip each.",
    ),
    "correct": (
        "entrypoints.cli.review:correct",
        "Correct fields of a document, or accept it; extraction does not change them any more.",
    ),
    "run": (
        "entrypoints.cli.runs:run",
        "Show one run: progress by source and stage, failures by class, and each document.",
    ),
    "logs": (
        "entrypoints.cli.runs:logs",
        "Show the log of a run; with --json one object a line.",
    ),
    "workers": (
        "entrypoints.cli.status:workers",
        "List workers. One is lost if its last heartbeat is older than a lease.",
    ),
    "worker": (
        "entrypoints.cli.worker:worker",
        "Process what is due until stopped. Ctrl-C or SIGTERM finishes the jobs under way.",
    ),
    "serve": (
        "entrypoints.cli.serve:serve",
        "Serve the HTTP API and the dashboard until stopped. Without tokens, on loopback only.",
    ),
    "maintain": (
        "entrypoints.cli.maintain:maintain",
        "Delete old logs, old jobs and unused raw bytes, and compact the database.",
    ),
    "migrate": (
        "entrypoints.cli.migrate:migrate",
        "Bring the database to the schema of this version, when no worker uses it.",
    ),
    "move": (
        "entrypoints.cli.move:move",
        "Copy everything in the database to another, empty one: from SQLite to Postgres.",
    ),
    "status": (
        "entrypoints.cli.status:status",
        "Show documents, work and runs of a tenant, and the servers of this home.",
    ),
    "config": (
        "entrypoints.cli.doctor:config",
        "Print the settings in effect, with secrets masked.",
    ),
    "doctor": (
        "entrypoints.cli.doctor:doctor",
        "Check database, migrations, Redis, models, Prefect API and disk.",
    ),
    "up": (
        "entrypoints.cli.up:up",
        "Run Postgres, Valkey, a Prefect server, workers and the HTTP API until stopped.",
    ),
    "down": (
        "entrypoints.cli.up:down",
        "Stop `penstock up`, or the local Prefect server of this home. Data is kept.",
    ),
    "demo": (
        "entrypoints.cli.demo:demo",
        "Ingest a bundled careers site and a folder of résumés, then search them.",
    ),
    "runs": ("entrypoints.cli.runs:app", "List runs, newest first; abort or watch one."),
    "source": (
        "entrypoints.cli.sources:app",
        "Manage named sources: add, list, remove, test.",
    ),
    "backfill": (
        "entrypoints.cli.backfill:app",
        "Bring old documents up to date, behind all new work; try a sample first.",
    ),
    "eval": (
        "entrypoints.cli.evaluate:evaluate",
        "Extract labelled documents and compare: precision, recall, F1, calibration, cost.",
    ),
    "jobs": (
        "entrypoints.cli.jobs:app",
        "List, show, retry, cancel and delete jobs; find stuck ones.",
    ),
}


def load_command(name: str) -> Any:
    """Import a command, as Typer builds it."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(import_module(module), attribute)
    holder = typer.Typer()
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    return get_group(holder).commands[name]


class LazyGroup(TyperGroup):
    """Lists commands from the table; loads the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: TyperCommand(name, help=text) for name, (_, text) in COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name else command, rest


app = typer.Typer(
    name="penstock",
    cls=LazyGroup,
    help="Turn piles of pages and files into structured, searchable records.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, help="Show the version.")
    ] = False,
) -> None:
    del version
    if context.invoked_subcommand != "up":
        from entrypoints.cli.local_servers import warn
        from penstock.local.joining import join_installation

        join_installation(warn)


def main() -> None:
    """Run a command. Exit codes: 0 done, 1 not done, 2 wrong use, 130 interrupted."""
    sys.unraisablehook = deliver_interrupt_again
    try:
        app()
    except PenstockError as error:
        if "--json" in sys.argv:
            print_json({"error": str(error)})
        else:
            print_error(str(error))
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except BrokenPipeError:
        # The reader of our output has gone (`penstock nodes | head`): an error cannot be shown.
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
