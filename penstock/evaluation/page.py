"""Evaluations as Markdown, from their JSON form: the figures can be kept, and shown again later."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_LEVELS = ("exact", "normalised", "soft")
_OTHERS = ("mean_soft_f1", "worst_soft_f1", "any_right", "said", "right")
FIELD_COLUMNS = (
    "field",
    "documents",
    *(f"{level} {name}" for level in _LEVELS for name in ("P", "R", "F1")),
    "mean soft F1",
    "worst",
    "any right",
    "said",
    "right",
)
CURVE_COLUMNS = ("confidence", "values", "said", "right", "")
CHANGE_COLUMNS = ("document", "before", "after", "fields")
_BAR = 20
# Of each kind, the largest.
MOST_CHANGES = 20

Json = Mapping[str, Any]


def page_markdown(title: str, evaluations: Sequence[Json], changes: Sequence[Json] = ()) -> str:
    """One page: each evaluation, then what changed from the first setup to the second."""
    parts = [f"# {title}", *map(evaluation_markdown, evaluations), *map(_changes_markdown, changes)]
    return "\n\n".join(parts) + "\n"


def evaluation_markdown(evaluation: Json, heading: str = "##") -> str:
    """The figures of one evaluation, under a heading."""
    setup = evaluation["setup"]
    return f"{heading} {setup['gold']}: {describe_setup(setup)}\n\n{figures_markdown(evaluation)}"


def figures_markdown(evaluation: Json) -> str:
    """The same without a heading."""
    parts = [describe_counts(evaluation)]
    for profile, rows in field_rows(evaluation).items():
        parts.append(f"Profile `{profile}`:\n\n{_table(FIELD_COLUMNS, rows)}")
    if curve := curve_rows(evaluation):
        error = show(evaluation["calibration"]["error"])
        parts.append(f"Confidence of fields, off by {error} on average:")
        parts.append(_table(CURVE_COLUMNS, curve))
    parts.append(describe_usage(evaluation))
    return "\n\n".join(parts)


def describe_setup(setup: Json) -> str:
    asked = f", profile {setup['profile']}" if setup["profile"] else ""
    caps = ", lists whole" if setup["uncapped"] else ", lists as nodes show them"
    return f"{setup['extractor']}, version {setup['version']}{asked}{caps}"


def describe_counts(evaluation: Json) -> str:
    counts, all_of_them = evaluation["counts"], evaluation["counts"]["documents"]
    return (
        f"{all_of_them} documents: {counts['ready']} extracted, {counts['needs_review']} of them "
        f"below the threshold of confidence, {counts['profile_detected']} whose profile their "
        f"content shows. Mean score {show(evaluation['score'])}."
    )


def describe_usage(evaluation: Json) -> str:
    usage = evaluation["usage"]
    latency = usage["latency"]
    took = (
        f"{usage['seconds']:.1f} s in all; a document {_seconds(latency['mean'])} on average, "
        f"{_seconds(latency['median'])} in the median, {_seconds(latency['p95'])} at the 95th "
        "percentile"
    )
    if not usage["calls"]:
        return f"No calls to models. {took}."
    cost = "at an unknown cost (a model has no price: name it in EXTRACTION_PRICES)"
    if usage["cost_usd"] is not None:
        each = usage["cost_usd"] / evaluation["counts"]["documents"]
        cost = f"${usage['cost_usd']:.6f} in all, ${each:.6f} a document"
    tokens = (
        f"{usage['prompt_tokens']} tokens of prompts ({usage['cached_tokens']} cached) and "
        f"{usage['completion_tokens']} of answers"
    )
    return f"{usage['calls']} calls, {tokens}, {cost}. {took}."


def field_rows(evaluation: Json) -> dict[str, list[tuple[str, ...]]]:
    """By profile, a row for each field."""
    return {
        profile: [_field_row(name, one) for name, one in fields.items()]
        for profile, fields in evaluation["fields"].items()
    }


def _field_row(name: str, one: Json) -> tuple[str, ...]:
    levels = [show(one[level][of]) for level in _LEVELS for of in ("precision", "recall", "f1")]
    others = [show(one[of]) for of in _OTHERS]
    return (name, str(one["documents"]), *levels, *others)


def side_by_side(before: Json, after: Json) -> dict[str, list[tuple[str, ...]]]:
    """By profile, the F1 of each field under both setups, and the difference. A profile that was
    not used before is compared by the names of its fields."""
    every = {name: one for fields in before["fields"].values() for name, one in fields.items()}
    return {
        profile: [
            (name, *_pairs(one, fields[name]))
            for name, one in before["fields"].get(profile, every).items()
            if name in fields
        ]
        for profile, fields in after["fields"].items()
    }


SIDE_COLUMNS = ("field", *(f"{level} F1" for level in _LEVELS))


def _pairs(before: Json, after: Json) -> Iterable[str]:
    for level in _LEVELS:
        one, two = before[level]["f1"], after[level]["f1"]
        change = "" if one is None or two is None else f" ({two - one:+.3f})"
        yield f"{show(one)} → {show(two)}{change}"


def curve_rows(evaluation: Json) -> list[tuple[str, ...]]:
    """A row for each step of confidence; the bar is the share of values that are right."""
    return [
        (
            f"{one['low']:.1f}–{one['high']:.1f}",
            str(one["values"]),
            show(one["said"]),
            show(one["right"]),
            "█" * round(one["right"] * _BAR),
        )
        for one in evaluation["calibration"]["steps"]
    ]


def change_rows(changes: Sequence[Json]) -> list[tuple[str, ...]]:
    return [
        (
            one["id"],
            show(one["before"]),
            show(one["after"]),
            ", ".join(f"{name} {show(a)} → {show(b)}" for name, (a, b) in one["fields"].items()),
        )
        for one in changes[:MOST_CHANGES]
    ]


def _changes_markdown(compared: Json) -> str:
    before, after, changes = compared["before"], compared["after"], compared["changes"]
    parts = [f"## {after['setup']['gold']}: before and after"]
    parts.append(f"Before: {describe_setup(before['setup'])}. {describe_usage(before)}")
    parts.append(f"After: {describe_setup(after['setup'])}. {describe_usage(after)}")
    parts += [_table(SIDE_COLUMNS, rows) for rows in side_by_side(before, after).values()]
    parts.append(describe_changes(changes))
    for side in ("better", "worse"):
        if changes[side]:
            parts.append(
                f"{side.capitalize()}:\n\n{_table(CHANGE_COLUMNS, change_rows(changes[side]))}"
            )
    return "\n\n".join(parts)


def describe_changes(changes: Json) -> str:
    missing = changes["missing"]
    only = f", {missing} are in one of the two only" if missing else ""
    return (
        f"{len(changes['better'])} documents got better, {len(changes['worse'])} worse, "
        f"{changes['same']} stayed the same{only}."
    )


def show(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.0f} ms"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
