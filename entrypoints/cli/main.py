"""The command line's front door: the commands, and how their errors reach the reader."""

import os
import signal
import sys
import threading
from typing import Annotated

import typer

from entrypoints.cli import (
    backfill,
    config,
    demo,
    doctor,
    ingest,
    jobs,
    logs,
    maintain,
    move,
    nodes,
    runs,
    search,
    serve,
    servers,
    sources,
    status,
    up,
    worker,
    workers,
)
from entrypoints.cli.joining import join_installation
from entrypoints.cli.output import print_error, print_json
from penstock import __version__
from penstock.errors import PenstockError, UsageError

app = typer.Typer(
    name="penstock",
    help="Turn piles of pages and files into structured, searchable records.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("ingest")(ingest.ingest)
app.command("resume")(ingest.resume)
app.command("search")(search.search)
app.command("show")(nodes.show)
app.command("nodes")(nodes.nodes)
app.add_typer(runs.app, name="runs")
app.command("run")(runs.run)
app.command("logs")(logs.logs)
app.add_typer(sources.app, name="source")
app.add_typer(backfill.app, name="backfill")
app.add_typer(jobs.app, name="jobs")
app.command("workers")(workers.workers)
app.command("worker")(worker.worker)
app.command("serve")(serve.serve)
app.command("maintain")(maintain.maintain)
app.command("move")(move.move)
app.command("status")(status.status)
app.command("config")(config.config)
app.command("doctor")(doctor.doctor)
app.command("up")(up.up)
app.command("down")(servers.down)
app.command("demo")(demo.demo)


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
        join_installation()


def deliver_interrupt_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Python prints and drops a Ctrl-C that arrives while an object is being destroyed or a library
    written in C calls back; the command would go on as if nothing had happened."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        # A moment later: at once it would arrive in this very function, and be dropped again.
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(unraisable)


def main() -> None:
    """Run a command. Exit codes: 0 done, 1 not done, 2 wrong use."""
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
        # The reader of our output has gone (`penstock nodes | head`): nobody is left to tell.
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
