"""`penstock search`."""

from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from entrypoints.cli.output import Json, Tenant, console, print_json
from penstock.bootstrap import App, open_app
from penstock.errors import UsageError
from penstock.search.query import HIT_END, HIT_START, Filters, Hit, parse_at_least
from penstock.settings import load_settings


class Mode(StrEnum):
    HYBRID = "hybrid"
    TEXT = "text"
    VECTOR = "vector"


def search(
    query: Annotated[str, typer.Argument(help='What to look for; "quotes" make a phrase.')],
    mode: Annotated[Mode, typer.Option(help="Words, meaning, or both.")] = Mode.HYBRID,
    tenant: Tenant = None,
    source: Annotated[str | None, typer.Option(help="Only documents of this source.")] = None,
    profile: Annotated[str | None, typer.Option(help="Only documents of this profile.")] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(help="Only where an extracted field has a value: primary_skills=Python."),
    ] = None,
    at_least: Annotated[
        list[str] | None,
        typer.Option(help="Only where an extracted number is this or more: salary_min=60000."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many hits.")] = 10,
    json: Json = False,
) -> None:
    """Find documents by words, by meaning, or by both."""
    settings = load_settings()
    fields, least = _fields(field or []), parse_at_least(at_least or [])
    filters = Filters(tenant or settings.tenant, source, profile, fields, least)
    with open_app(settings) as app:
        hits = find(app, query, filters, mode, limit)
    if json:
        print_json([hit.as_json() for hit in hits])
        return
    print_hits(hits)


def _fields(given: list[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise UsageError(f"--field {name}{equals}{value}: write it as name=value")
    return {name: value for name, _, value in pairs}


def find(app: App, query: str, filters: Filters, mode: Mode, limit: int) -> list[Hit]:
    if not query.strip():
        raise UsageError("there is nothing to look for: give a word or a sentence")
    return app.search(query, filters, mode.value, limit)


def print_hits(hits: list[Hit]) -> None:
    if not hits:
        console.print("nothing found")
    for number, hit in enumerate(hits, start=1):
        console.print(Text.assemble((f"{number}. ", "dim"), (hit.title, "bold")))
        console.print(Text.assemble("   ", (f"{hit.score:.4f}  {hit.url or ''}", "dim")))
        console.print(Text.assemble("   ", highlighted(hit.snippet)))


def highlighted(snippet: str) -> Text:
    text = Text()
    for number, part in enumerate(snippet.split(HIT_START)):
        hit, _, rest = part.partition(HIT_END) if number else ("", "", part)
        text.append(hit, style="bold black on yellow")
        text.append(rest)
    return text
