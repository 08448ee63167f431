"""`penstock source`: the sources that are kept by name."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from entrypoints.cli.output import Json, Tenant, console, print_json, print_table
from penstock.app import App, open_app
from penstock.errors import UsageError
from penstock.llm.profiles import load_own_profiles, profile_named
from penstock.settings import load_settings
from penstock.sources.catalogue import (
    Source,
    SourceDefinition,
    define,
    list_sources,
    put_source,
    read_sources,
    remove_source,
    write_sources,
)
from penstock.sources.finder import PreviewedDocument, preview_listing

app = typer.Typer(no_args_is_help=True, help="Manage named sources: add, list, remove, test.")
SHOWN = 200


@app.command()
def add(
    name: Annotated[str | None, typer.Argument(help="What to call it: a company.")] = None,
    location: Annotated[
        str | None, typer.Argument(help="A folder, a file, a URL, or s3://bucket/prefix.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="site, jobs (pages with a JobPosting), greenhouse, lever, ashby, feed, url_list, "
            "folder, file or s3. Default: recognised."
        ),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Fields to extract.")] = None,
    include_title: Annotated[
        list[str] | None, typer.Option(help="Only titles with this word; engineer* for a part.")
    ] = None,
    exclude_title: Annotated[
        list[str] | None, typer.Option(help="No titles with this word.")
    ] = None,
    link_pattern: Annotated[
        str | None, typer.Option(help="Only pages whose address matches this expression.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Process unchanged documents too, in every run.")
    ] = False,
    file: Annotated[
        Path | None, typer.Option(help="Add, or change, all sources of a YAML file instead.")
    ] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Add a source, or change the one of that name."""
    if file is not None:
        wanted = read_sources(file)
    elif name is None or location is None:
        raise UsageError("give a NAME and a LOCATION, or --file sources.yaml")
    else:
        given = {
            "name": name,
            "location": location,
            "kind": kind,
            "profile": profile,
            "include_titles": include_title or [],
            "exclude_titles": exclude_title or [],
            "link_pattern": link_pattern,
            "force": force,
        }
        wanted = [define(f"source {name}", given)]
    kept = _put_all(wanted, tenant)
    if json:
        print_json([source.as_json() for source in kept])
        return
    for source in kept:
        console.print(f"{source.name}: a {source.kind} at {source.location}", highlight=False)
    console.print(f"next: penstock source test {kept[0].name}", highlight=False)


@app.command("list")
def list_(
    tenant: Tenant = None,
    yaml: Annotated[
        bool, typer.Option("--yaml", help="As a file that `source add --file` takes.")
    ] = False,
    json: Json = False,
) -> None:
    """List the sources of a tenant."""
    settings = load_settings()
    with open_app(settings) as opened, opened.database.read() as tx:
        found = list_sources(tx, tenant or settings.tenant)
    if json:
        print_json([source.as_json() for source in found])
    elif yaml:
        typer.echo(write_sources(found), nl=False)
    elif not found:
        console.print("no sources yet: penstock source add NAME LOCATION", highlight=False)
    else:
        rows = [(source.name, source.kind, source.location, _settings(source)) for source in found]
        print_table(("name", "kind", "location", "settings"), rows)


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="The source to remove.")],
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Remove a source. Its documents stay searchable."""
    settings = load_settings()
    with open_app(settings) as opened, opened.database.write() as tx:
        gone = remove_source(tx, tenant or settings.tenant, name)
    if json:
        print_json(gone.as_json())
    else:
        console.print(f"{gone.name} removed; its documents stay", highlight=False)


@app.command("test")
def try_source(
    name: Annotated[str, typer.Argument(help="The name of a source, or a location to try.")],
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """List what a run would crawl, and why; nothing is crawled or changed."""
    settings = load_settings()
    with open_app(settings) as opened:
        known = opened.sources.find(name, tenant or settings.tenant)
        if known is None:
            listing = opened.sources.listing(None, name)
        else:
            listing = opened.sources.listing(known.kind, known.location, known.settings)
        found = list(preview_listing(listing, opened.fetcher))
    if json:
        documents = [document.as_json() for document in found]
        included = sum(document.decision.included for document in found)
        print_json({"kind": listing.kind, "included": included, "documents": documents})
    else:
        _print_preview(name, listing.kind, found)


def _put_all(wanted: "list[SourceDefinition]", tenant: str | None) -> "list[Source]":
    settings = load_settings()
    with open_app(settings) as opened:
        load_own_profiles(settings.extraction.profiles)
        for definition in wanted:
            if definition.profile is not None:
                profile_named(definition.profile)
        checked = [(definition, *_check(opened, definition)) for definition in wanted]
        with opened.database.write() as tx:
            return [
                put_source(
                    tx,
                    tenant or definition.tenant or settings.tenant,
                    definition.name,
                    kind,
                    location,
                    definition.settings,
                )
                for definition, kind, location in checked
            ]


def _check(opened: App, definition: "SourceDefinition") -> tuple[str, str]:
    """Its kind and location in their one spelling; what cannot be a source is refused here."""
    listing = opened.sources.listing(definition.kind, definition.location, definition.settings)
    return listing.kind, listing.location


def _settings(source: "Source") -> str:
    chosen = source.settings.model_dump(exclude_defaults=True)
    shown = {
        name: " ".join(value) if isinstance(value, tuple) else value
        for name, value in chosen.items()
    }
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def _print_preview(name: str, kind: str, found: "list[PreviewedDocument]") -> None:
    rows = [
        (
            Text("yes", style="green") if one.decision.included else Text("no", style="yellow"),
            one.listed.title,
            one.listed.url,
            one.decision.why,
        )
        for one in found[:SHOWN]
    ]
    print_table(("crawled", "title", "address", "why"), rows)
    included = sum(one.decision.included for one in found)
    more = f" (the first {SHOWN} are shown)" if len(found) > SHOWN else ""
    console.print(
        f"{name} is a {kind}: {len(found)} listed, {included} would be crawled{more}",
        highlight=False,
    )
