"""`penstock logs`: what happened in a run, line by line."""

import json as json_module
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from entrypoints.cli.output import Json, Tenant, console
from penstock.bootstrap import App, open_app
from penstock.settings import load_settings

if TYPE_CHECKING:
    from penstock.events.log import LogLine

FOLLOW_SECONDS = 0.5
_STYLES = {"ING": "blue", "CRL": "cyan", "TXT": "green", "LLM": "magenta", "EMB": "yellow"}
_LEVEL_STYLES = {"WARNING": "yellow", "ERROR": "bold red"}


def logs(
    run_id: Annotated[int, typer.Argument(help="The run.")],
    stage: Annotated[
        list[str] | None, typer.Option(help="Only this stage: ING, CRL, TXT, LLM, EMB.")
    ] = None,
    level: Annotated[
        str | None, typer.Option(help="Only lines this serious: INFO, WARNING, ERROR.")
    ] = None,
    after: Annotated[int, typer.Option(min=0, help="Go on after this sequence number.")] = 0,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")
    ] = False,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Show the log of a run; with --json one object a line."""
    from penstock.runs.lifecycle import read_run

    settings = load_settings()
    with open_app(settings) as app:
        with app.database.read() as tx:
            read_run(tx, run_id, tenant or settings.tenant)
        for line in _lines(app, run_id, after, stage or [], level, follow):
            if json:
                typer.echo(json_module.dumps(line.as_json(), ensure_ascii=False))
            else:
                console.print(_shown(line), highlight=False, soft_wrap=True)


def _lines(
    app: App, run_id: int, after: int, stages: list[str], level: str | None, follow: bool
) -> "Iterator[LogLine]":
    from penstock.events.log import read_log
    from penstock.runs.lifecycle import read_run

    while True:
        with app.database.read() as tx:
            # Asked first: what is written before the run's end is found by the read after it.
            active = follow and read_run(tx, run_id).status.active
        with app.database.read() as tx:
            found = read_log(tx, run_id, after=after, stages=stages, level=level)
        yield from found
        if found:
            after = found[-1].seq
        elif not active:
            return
        else:
            time.sleep(FOLLOW_SECONDS)


def _shown(line: "LogLine") -> Text:
    about = f"{line.document}: " if line.document else ""
    return Text.assemble(
        (f"{line.at:%Y-%m-%d %H:%M:%S} ", "dim"),
        (f"{line.stage} ", _STYLES.get(line.stage, "")),
        (f"{line.level:<7} ", _LEVEL_STYLES.get(line.level, "dim")),
        f"{about}{line.message}",
    )
