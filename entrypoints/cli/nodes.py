"""`penstock nodes` and `penstock show`: documents as they are kept."""

from typing import Annotated, Any

import typer

from entrypoints.cli.output import Json, Tenant, console, print_json, print_pairs, print_table
from penstock.bootstrap import open_app
from penstock.settings import load_settings

_SHOWN = ("id", "title", "profile", "extraction_status", "embedding_status", "external_id")
_LONG = ("text", "props", "metadata")


def nodes(
    run: Annotated[int | None, typer.Option("--run", help="Only documents of this run.")] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """List documents."""
    from penstock.runs.lifecycle import read_run
    from penstock.search.nodes import list_nodes

    settings = load_settings()
    tenant_id = tenant or settings.tenant
    with open_app(settings) as app, app.database.read() as tx:
        if run is not None:
            read_run(tx, run, tenant_id)
        found = list_nodes(tx, tenant_id, run_id=run)
    if json:
        print_json(found)
        return
    print_table(_SHOWN, [[node[name] for name in _SHOWN] for node in found])


def show(
    node_id: Annotated[str, typer.Argument(help="The id of a node, from `penstock nodes`.")],
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Show one document: text, fields, and how they came about."""
    from penstock.search.nodes import show_node

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
    console.print("\n[bold]fields[/]")
    print_pairs((name, value) for name, value in known.items())
    console.print("\n[bold]text[/]")
    console.print(node["text"], markup=False, highlight=False)
