"""`penstock search`, `penstock nodes` and `penstock show`: the documents."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.text import Text

from entrypoints.cli.output import (
    ON_SCREEN,
    Json,
    Tenant,
    console,
    print_cut,
    print_json,
    print_pairs,
    print_table,
)
from penstock.app import App, open_app
from penstock.errors import UsageError
from penstock.runs.lifecycle import read_run
from penstock.search.nodes import list_nodes, show_node
from penstock.search.query import HIT_END, HIT_START, Filters, Hit, parse_at_least
from penstock.settings import load_settings


class Mode(StrEnum):
    HYBRID = "hybrid"
    TEXT = "text"
    VECTOR = "vector"


def search(
    query: Annotated[str, typer.Argument(help='What to look for; "quotes" make a phrase.')],
    mode: Annotated[
        Mode, typer.Option(help="text: keywords; vector: meaning; hybrid: both.")
    ] = Mode.HYBRID,
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
    needs_review: Annotated[
        bool | None,
        typer.Option(
            "--needs-review/--confident", help="Only documents that need review, or none of them."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many hits.")] = 10,
    json: Json = False,
) -> None:
    """Search documents by keyword, by meaning, or both."""
    settings = load_settings()
    fields, least = _fields(field or []), parse_at_least(at_least or [])
    tenant_id = tenant or settings.tenant
    filters = Filters(tenant_id, source, profile, fields, least, needs_review=needs_review)
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
        raise UsageError("the query is empty: give at least one word")
    return app.searcher.search(query, filters, mode.value, limit)


def print_hits(hits: list[Hit]) -> None:
    if not hits:
        console.print("nothing found")
    for number, hit in enumerate(hits, start=1):
        console.print(Text.assemble((f"{number}. ", "dim"), (hit.title, "bold")))
        console.print(Text.assemble("   ", (f"{hit.score:.4f}  {hit.url or ''}", "dim")))
        if hit.place:
            console.print(Text.assemble("   ", (hit.place, "dim")))
        console.print(Text.assemble("   ", highlighted(hit.snippet)))


def highlighted(snippet: str) -> Text:
    text = Text()
    for number, part in enumerate(snippet.split(HIT_START)):
        hit, _, rest = part.partition(HIT_END) if number else ("", "", part)
        text.append(hit, style="bold black on yellow")
        text.append(rest)
    return text


_SHOWN = ("id", "title", "profile", "extraction_status", "embedding_status", "external_id")
_TO_REVIEW = ("id", "title", "profile", "extraction_confidence", "review_reasons", "external_id")
_LONG = ("text", "props", "metadata", "evidence", "fields")


def nodes(
    run: Annotated[int | None, typer.Option("--run", help="Only documents of this run.")] = None,
    needs_review: Annotated[
        bool, typer.Option("--needs-review", help="Only documents that need review.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="How many; default: 100 on the screen, all with --json."),
    ] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """List documents, oldest first."""
    settings = load_settings()
    tenant_id = tenant or settings.tenant
    with open_app(settings) as app, app.database.read() as tx:
        if run is not None:
            read_run(tx, run, tenant_id)
        # One more tells whether there are more.
        most = ON_SCREEN + 1 if limit is None and not json else limit
        found = list_nodes(tx, tenant_id, run_id=run, needs_review=needs_review, limit=most)
    if json:
        print_json(found)
        return
    shown = found[: limit or ON_SCREEN]
    columns = _TO_REVIEW if needs_review else _SHOWN
    print_table(columns, [[_cell(node[name]) for name in columns] for node in shown])
    if len(found) > len(shown):
        print_cut(len(shown), "penstock nodes --json, or a larger --limit")


def _cell(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, list) else value


def show(
    node_id: Annotated[str, typer.Argument(help="The id of a node, from `penstock nodes`.")],
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Show one document: its text, fields and extraction details."""
    settings = load_settings()
    with open_app(settings) as app, app.database.read() as tx:
        node = show_node(tx, tenant or settings.tenant, node_id)
    if json:
        print_json(node)
        return
    _print_node(node)


def _print_node(node: dict[str, Any]) -> None:
    print_pairs((name, value) for name, value in node.items() if name not in _LONG)
    known = {name: value for name, value in node["props"].items() if name not in node}
    console.print("\n[bold]fields[/]", markup=True)
    print_pairs((name, value) for name, value in known.items())
    if node["evidence"]:
        rows = [row for name, one in node["evidence"].items() for row in _evidence_rows(name, one)]
        print_table(("field", "confidence", "found", "at", "quote"), rows, title="evidence")
    console.print("\n[bold]text[/]", markup=True)
    console.print(node["text"], highlight=False)


def _evidence_rows(name: str, field: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """A row for each value; the field and its confidence stand in the first."""
    for number, place in enumerate(field["places"]):
        head = ("", "") if number else (name, f"{field['confidence']:.2f}")
        if place is None:
            yield (*head, "unsupported", "", "")
            continue
        at = "" if place["start"] is None else f"{place['start']}-{place['end']}"
        page = f", page {place['page']}" if place["page"] else ""
        yield (*head, place["match"], at + page, place["quote"] or "")
