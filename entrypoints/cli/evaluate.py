"""`penstock eval`: how good extraction is, by labelled documents."""

import json as json_module
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from entrypoints.cli.output import Json, Tenant, console, errors, print_json, print_table
from penstock.app import App, open_app
from penstock.errors import UsageError
from penstock.settings import Settings, load_settings

if TYPE_CHECKING:
    from penstock.evaluation.evaluation import Changes, Evaluation
    from penstock.evaluation.gold import GoldSet

_KEYS = ("backend", "models", "version", "profile")
_BACKENDS = ("auto", "groq", "rules")
# Of the columns of a page, those that fit on a screen.
_SHOWN = (0, 1, 4, 5, 6, 7, 10, 12, 13)


def evaluate(
    gold: Annotated[
        list[str] | None,
        typer.Argument(
            help="JSONL files of labelled documents; corrections: what people have corrected or "
            "accepted; or resumes, postings, resumes-dev …: those that come with Penstock. "
            "Default: all of these."
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Extract with this profile. Default: each with its own.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option(help="groq or rules, instead of EXTRACTION_BACKEND.")
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="PRIMARY[,FALLBACK] instead of those of the settings.")
    ] = None,
    version: Annotated[
        str | None, typer.Option(help="What to call it, instead of EXTRACTION_VERSION.")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="What to compare with: backend=…, models=…, version=… or profile=…, once for "
            "each; or the file of an earlier `penstock eval --json`."
        ),
    ] = None,
    uncapped: Annotated[
        bool, typer.Option("--uncapped", help="Judge lists whole, not cut as nodes show them.")
    ] = False,
    write: Annotated[
        Path | None, typer.Option(help="Also write the figures to this file, as Markdown.")
    ] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Extract labelled documents and compare: precision, recall, F1, calibration, cost.

    Nothing is written to the store. Models are asked anew, and what that costs is told.
    """
    given = {"backend": backend, "models": models, "version": version, "profile": profile}
    chosen = {name: value for name, value in given.items() if value is not None}
    settings = load_settings()
    earlier, other = _read_against(against or (), settings)
    with open_app(settings) as opened:
        sets = _read_sets(opened, gold or (), tenant or settings.tenant)
        found = _evaluate_sets(opened, sets, chosen, uncapped)
        if other is not None:
            earlier = _evaluate_sets(opened, sets, other, uncapped)
    compared = _compare(earlier, found)
    values = [one.as_json() for one in found]
    if write is not None:
        _write_page(write, values, compared)
    if json:
        print_json({"evaluations": values, "compared": [_without_sets(one) for one in compared]})
        return
    for one in values:
        _print_evaluation(one)
    for one in compared:
        _print_comparison(one)


def _read_against(
    against: Sequence[str], settings: Settings
) -> tuple[list["Evaluation"], dict[str, str] | None]:
    """Earlier evaluations, or another setup to evaluate now."""
    if not against:
        return [], None
    if len(against) == 1 and "=" not in against[0]:
        return _read_earlier(Path(against[0])), None
    other = dict(_read_pair(one) for one in against)
    _change_settings(settings, other)  # whatever is wrong with it, before the first document
    return [], other


def _read_pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if name not in _KEYS or not value:
        raise UsageError(
            f"--against {text}: write {', '.join(f'{key}=…' for key in _KEYS)}, or name the file "
            "of an earlier `penstock eval --json`"
        )
    return name, value


def _read_earlier(path: Path) -> list["Evaluation"]:
    from penstock.evaluation.evaluation import Evaluation

    try:
        stored = json_module.loads(path.read_text(encoding="utf-8"))
        return [Evaluation.from_json(one) for one in stored["evaluations"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is not what `penstock eval --json` wrote ({type(error).__name__}: {error})"
        ) from error


def _read_sets(opened: App, names: Sequence[str], tenant: str) -> list["GoldSet"]:
    from penstock.evaluation.gold import CORRECTIONS, gold_set, read_gold
    from penstock.llm.profiles import load_own_profiles
    from penstock.review.gold import list_gold

    load_own_profiles(opened.settings.extraction.profiles)
    others = [name for name in names if name != CORRECTIONS]
    found = read_gold(others) if others or not names else []
    if CORRECTIONS in names:
        corrected = gold_set(CORRECTIONS, list_gold(opened.database, tenant))
        if not corrected.records:
            raise UsageError(f"tenant {tenant} has no correction: see `penstock review`")
        found.append(corrected)
    return found


def _evaluate_sets(
    opened: App, sets: Iterable["GoldSet"], chosen: Mapping[str, str], uncapped: bool
) -> list["Evaluation"]:
    from entrypoints.cli.progress import shown_documents
    from penstock.evaluation.evaluation import evaluate

    other = App(_change_settings(opened.settings, chosen), opened.database)
    found: list[Evaluation] = []
    try:
        for gold in sets:
            with shown_documents(f"eval {gold.name}", len(gold.records)) as progress:
                asked = chosen.get("profile")
                found.append(
                    evaluate(other, gold, profile=asked, uncapped=uncapped, progress=progress)
                )
    finally:
        other.stop_parts()
    return found


def _change_settings(settings: Settings, chosen: Mapping[str, str]) -> Settings:
    changes: dict[str, Any] = {}
    if (backend := chosen.get("backend")) is not None:
        if backend not in _BACKENDS:
            raise UsageError(f"{backend} is not a backend: use one of {', '.join(_BACKENDS)}")
        changes["backend"] = backend
    if (models := chosen.get("models")) is not None:
        primary, _, fallback = (part.strip() for part in models.partition(","))
        changes |= {"primary_model": primary, "fallback_model": fallback or primary}
    if (version := chosen.get("version")) is not None:
        changes["version"] = version
    extraction = settings.extraction.model_copy(update=changes)
    return settings.model_copy(update={"extraction": extraction})


def _compare(before: Sequence["Evaluation"], after: Sequence["Evaluation"]) -> list[dict[str, Any]]:
    """What changed, for each set of documents that is in both."""
    from penstock.evaluation.evaluation import compare_evaluations

    old = {one.setup.gold: one for one in before}
    both = [(old[one.setup.gold], one) for one in after if one.setup.gold in old]
    if before and not both:
        raise UsageError("--against holds no evaluation of the same labelled documents")
    return [_compared(one, two, compare_evaluations(one, two)) for one, two in both]


def _compared(before: "Evaluation", after: "Evaluation", changes: "Changes") -> dict[str, Any]:
    return {
        "before": before.as_json(documents=False),
        "after": after.as_json(documents=False),
        "changes": changes.as_json(),
    }


def _without_sets(compared: Mapping[str, Any]) -> dict[str, Any]:
    return {"before": compared["before"], "changes": compared["changes"]}


def _write_page(
    path: Path, values: Sequence[Mapping[str, Any]], compared: Sequence[Mapping[str, Any]]
) -> None:
    from penstock.evaluation.page import page_markdown

    path.write_text(page_markdown("Evaluation", values, compared), encoding="utf-8")
    errors.print(f"written to {path}", highlight=False)


def _print_evaluation(value: Mapping[str, Any]) -> None:
    from penstock.evaluation import page

    console.print(f"{value['setup']['gold']}: {page.describe_setup(value['setup'])}", style="bold")
    console.print(page.describe_counts(value), highlight=False)
    columns = [page.FIELD_COLUMNS[number] for number in _SHOWN]
    for profile, rows in page.field_rows(value).items():
        print_table(columns, ([row[n] for n in _SHOWN] for row in rows), title=profile)
    if curve := page.curve_rows(value):
        print_table(page.CURVE_COLUMNS, curve, title="confidence of fields")
    console.print(page.describe_usage(value) + "\n", highlight=False)


def _print_comparison(compared: Mapping[str, Any]) -> None:
    from penstock.evaluation import page

    before, after, changes = compared["before"], compared["after"], compared["changes"]
    name = after["setup"]["gold"]
    console.print(f"{name}: {page.describe_setup(before['setup'])}", style="bold")
    console.print(f"→ {page.describe_setup(after['setup'])}", style="bold")
    for profile, rows in page.side_by_side(before, after).items():
        print_table(page.SIDE_COLUMNS, rows, title=profile)
    console.print(f"before: {page.describe_usage(before)}", highlight=False)
    console.print(f"after: {page.describe_usage(after)}", highlight=False)
    console.print(page.describe_changes(changes), highlight=False)
    for side in ("better", "worse"):
        if changes[side]:
            print_table(page.CHANGE_COLUMNS, page.change_rows(changes[side]), title=side)
