"""`penstock review` and `penstock correct`: records that people look at, and what they say."""

import getpass
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from entrypoints.cli.output import (
    ON_SCREEN,
    Json,
    Tenant,
    as_json,
    console,
    print_cut,
    print_error,
    print_json,
    print_table,
)
from penstock.app import App, open_app
from penstock.errors import UsageError
from penstock.llm.profiles import Profile, profile_named
from penstock.review.corrections import describe_reason
from penstock.review.gold import list_gold
from penstock.review.values import is_list, parse_value, write_value
from penstock.search.nodes import ReviewFilter, list_for_review, show_node
from penstock.settings import load_settings

_COLUMNS = ("id", "title", "profile", "confidence", "why")
_PAGE = 50
_QUOTED = 60
_CHOICES = "accept (a), correct (c), skip (s) or quit (q)"

Why = Annotated[str | None, typer.Option("--reason", help="Kept beside the correction.")]
Author = Annotated[
    str | None, typer.Option("--author", help="Who says so; default: the user of this machine.")
]


def review(
    source: Annotated[str | None, typer.Option(help="Only documents of this source.")] = None,
    profile: Annotated[str | None, typer.Option(help="Only documents of this profile.")] = None,
    reason: Annotated[
        str | None,
        typer.Option(
            help="Only for this reason: low_confidence, missing, missing:title, unsupported, …"
        ),
    ] = None,
    list_only: Annotated[
        bool, typer.Option("--list", help="List them instead of going through them.")
    ] = False,
    gold: Annotated[
        Path | None,
        typer.Option(help="Write corrections to this JSONL file, as labelled documents."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="How many; default: all, or 100 in a list on the screen."),
    ] = None,
    author: Author = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Go through what needs review, most valuable first: accept, correct or skip each."""
    settings = load_settings()
    wanted = ReviewFilter(tenant or settings.tenant, source, profile, reason)
    with open_app(settings) as app:
        if gold is not None:
            _write_gold(app, wanted.tenant_id, gold)
        elif json:
            print_json(_read_queue(app, wanted, limit))
        elif list_only or not _can_ask():
            _print_queue(_read_queue(app, wanted, (limit or ON_SCREEN) + 1), limit or ON_SCREEN)
        else:
            _Session(app, wanted.tenant_id, author or _user()).go_through(
                _queue(app, wanted, limit)
            )


def correct(
    node_id: Annotated[str, typer.Argument(help="The id of a node, from `penstock review`.")],
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FIELD=VALUE...",
            help="The right values. A list: name the field once for each item, or write JSON.",
        ),
    ] = None,
    reason: Why = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="The record is right as it is, or after these values.")
    ] = False,
    author: Author = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Correct fields of a document, or accept it; extraction does not change them any more."""
    if not (values or accept):
        raise UsageError("name a field and its value, as in title='Weir keeper', or use --accept")
    settings = load_settings()
    with open_app(settings) as app:
        session = _Session(app, tenant or settings.tenant, author or _user())
        if values:
            session.correct(node_id, _pairs(values), reason)
        if accept:
            session.accept(node_id, reason)
        node = session.read(node_id)
    if json:
        print_json(node)
    else:
        _print_outcome(node)


def _pairs(given: Sequence[str]) -> dict[str, str]:
    """The items of a list in lines."""
    pairs: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not (name and equals):
            raise UsageError(f"{one}: write it as field=value")
        pairs[name] = f"{pairs[name]}\n{value}" if name in pairs else value
    return pairs


def _can_ask() -> bool:
    return sys.stdin.isatty() and console.is_terminal


def _user() -> str:
    # A container may run as a number that has no name.
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return "command line"


def _queue(app: App, wanted: ReviewFilter, limit: int | None) -> Iterator[dict[str, Any]]:
    """Page by page, each read when it is needed."""
    after: str | None = None
    left = limit
    while left is None or left > 0:
        with app.database.read() as tx:
            page, after = list_for_review(tx, wanted, min(left or _PAGE, _PAGE), after)
        yield from page
        left = None if left is None else left - len(page)
        if after is None:
            return


def _read_queue(app: App, wanted: ReviewFilter, limit: int | None) -> list[dict[str, Any]]:
    return [*_queue(app, wanted, limit)]


def _print_queue(found: Sequence[dict[str, Any]], most: int) -> None:
    if not found:
        console.print("nothing needs review")
        return
    print_table(_COLUMNS, [_row(one) for one in found[:most]])
    if len(found) > most:
        print_cut(most, "penstock review --json, or a larger --limit")


def _row(node: dict[str, Any]) -> tuple[Any, ...]:
    confidence = node["extraction_confidence"]
    shown = None if confidence is None else f"{confidence:.2f}"
    return (node["id"], node["title"], node["profile"], shown, _reasons(node))


def _reasons(node: dict[str, Any]) -> str:
    return "; ".join(map(describe_reason, node["review_reasons"]))


def _write_gold(app: App, tenant_id: str, path: Path) -> None:
    lines = [as_json(one) + "\n" for one in list_gold(app.database, tenant_id)]
    try:
        path.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
    documents = "document" if len(lines) == 1 else "documents"
    console.print(f"{len(lines)} corrected {documents} written to {path}")


def _print_outcome(node: dict[str, Any]) -> None:
    if node["needs_review"]:
        console.print(f"{node['id']} still needs review: {_reasons(node)}")
    else:
        console.print(f"{node['id']} needs no review")
    if node["embedding_status"] == "queued":
        console.print("search by meaning follows when a worker has embedded it again")


class _Session:
    """A person who looks at records of one tenant."""

    def __init__(self, app: App, tenant_id: str, author: str) -> None:
        self._app = app
        self._tenant_id = tenant_id
        self._author = author

    def read(self, node_id: str) -> dict[str, Any]:
        with self._app.database.read() as tx:
            return show_node(tx, self._tenant_id, node_id)

    def accept(self, node_id: str, reason: str | None = None) -> None:
        decider = self._app.decider
        decider.accept(self._tenant_id, node_id, author=self._author, reason=reason)

    def correct(self, node_id: str, typed: dict[str, str], reason: str | None) -> None:
        decider, profile = self._app.decider, self._profile_of(self.read(node_id))
        given = {name: parse_value(profile, name, text) for name, text in typed.items()}
        decider.correct(self._tenant_id, node_id, given, author=self._author, reason=reason)

    def _profile_of(self, node: dict[str, Any]) -> Profile:
        if node["profile"] is None:
            raise UsageError(f"node {node['id']} has no fields yet: wait until it is extracted")
        return profile_named(node["profile"])

    def go_through(self, queue: Iterator[dict[str, Any]]) -> None:
        seen = 0
        for node in queue:
            seen += 1
            if not self._look_at(node["id"]):
                return
        console.print("nothing else needs review" if seen else "nothing needs review")

    def _look_at(self, node_id: str) -> bool:
        """Until it is decided; False when the person has had enough."""
        while True:
            node = self.read(node_id)
            _print_record(node)
            match typer.prompt(_CHOICES, default="s").strip().lower()[:1]:
                case "a":
                    self.accept(node_id)
                    return True
                case "c":
                    self._ask_for_value(node)
                    if not self.read(node_id)["needs_review"]:
                        return True
                case "s":
                    return True
                case "q":
                    return False
                case _:
                    print_error(f"answer with {_CHOICES}")

    def _ask_for_value(self, node: dict[str, Any]) -> None:
        try:
            profile = self._profile_of(node)
            name = typer.prompt(f"field ({', '.join(profile.field_names)})").strip()
            if name not in profile.field_names:
                raise UsageError(f"the profile {profile.name} has no field {name!r}")
            typed = {name: _ask_for_text(profile, name)}
            reason = typer.prompt("reason", default="", show_default=False).strip()
            self.correct(node["id"], typed, reason or None)
        except UsageError as error:
            print_error(str(error))


def _ask_for_text(profile: Profile, name: str) -> str:
    if not is_list(profile, name):
        return str(typer.prompt("value (nothing: none)", default="", show_default=False))
    console.print("one item a line; an empty line ends the list")
    lines = iter(lambda: str(typer.prompt("-", default="", show_default=False)).strip(), "")
    return "\n".join(lines)


def _print_record(node: dict[str, Any]) -> None:
    console.print(Text.assemble("\n", (node["title"] or node["external_id"], "bold")))
    where = node["url"] or node["external_id"]
    console.print(Text(f"{node['id']}  {node['profile']}  {where}", style="dim"))
    console.print(Text(_reasons(node), style="yellow"))
    rows = [_field_row(node, name) for name in {**node["fields"], **node["evidence"]}]
    print_table(("field", "confidence", "value", "found"), rows)


def _field_row(node: dict[str, Any], name: str) -> tuple[Any, ...]:
    evidence = node["evidence"].get(name)
    confidence = f"{evidence['confidence']:.2f}" if evidence else ""
    quotes = [_quote(place) for place in evidence["places"]] if evidence else []
    value = write_value(node["fields"].get(name))
    return (name, confidence, value, "\n".join(quotes))


def _quote(place: dict[str, Any] | None) -> str:
    if place is None:
        return "not in the text"
    return str(place["quote"] or place["match"])[:_QUOTED].replace("\n", " ")
