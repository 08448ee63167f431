"""`docs/reference/settings.md`: every environment variable, from the tree of settings."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from entrypoints.reference.markdown import NOTE, code, page, table
from penstock.settings import SECTIONS, Variable, list_variables

INTRODUCTION = """
Every environment variable that Penstock reads. A `.env` file in the current folder may hold them,
too. A saved Prefect block that is named wins over the environment, which wins over `.env`, which
wins over the defaults. An empty value counts as none. `penstock config` shows what is in effect.
A misspelt name stops the start.

🔒 marks secrets: where settings are shown, keys and passwords in them are hidden.
"""
OTHERS = """
## Read by others

`PREFECT_API_URL` (the Prefect server; empty: a local one is started when it is needed) and all
other `PREFECT_…` variables are Prefect's. `AWS_…` variables and files are used for S3 unless
`PENSTOCK_S3_…` say otherwise.
"""
# Beginnings of fields; the first group that has one takes the field.
GROUPS = {
    "Where things are": ("home", "dsn", "raw_", "s3_", "redis_url", "tenant"),
    "Work and recovery": (
        "lease_",
        "heartbeat_",
        "sweep_",
        "max_rescues",
        "job_timeout",
        "queue_age",
        "max_failed",
        "batch_size",
        "backfill_",
        "server_idle",
        "faults",
    ),
    "Documents and their text": ("text_", "max_document", "payload_", "extractors"),
    "Crawling": ("crawl_", "allow_private"),
    "HTTP API and pages": ("api_", "upload_", "node_batch"),
    "Models: key and budget": ("groq_", "max_cost"),
    "How long things are kept": ("keep_",),
}
SECTION_TITLES = {"extraction": "Extraction", "embedding": "Embedding"}
REST = "Others"
# What the machine decides would make the page another one on each.
BY_MACHINE = {"text_processes": "as many as there are cores"}
TYPES = {"integer": "whole number", "number": "number", "boolean": "`true` or `false`"}
FORMATS = {"path": "path", "password": "text"}
LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "minLength": "{} characters or more",
    "pattern": "like `{}`",
}


def write_settings_page() -> str:
    """The page as it should be."""
    lines = [NOTE, "# Settings", INTRODUCTION]
    for title, variables in _grouped().items():
        rows = [_row(names) for names in variables]
        columns = ("variable", "default", "value", "what it does")
        lines += [f"## {title}", "", *table(columns, rows), ""]
    return page([*lines, OTHERS.strip()])


def _grouped() -> dict[str, list[list[Variable]]]:
    """Fields by group, each with all of its names."""
    groups: dict[str, list[list[Variable]]] = {title: [] for title in GROUPS}
    groups |= {title: [] for title in (*SECTION_TITLES.values(), REST)}
    for _, names in groupby(list_variables(), key=lambda one: (one.section, one.field)):
        found = list(names)
        groups[_title(found[0])].append(found)
    return {title: fields for title, fields in groups.items() if fields}


def _title(variable: Variable) -> str:
    if variable.section is not None:
        return SECTION_TITLES.get(variable.section, REST)
    fitting = (title for title, starts in GROUPS.items() if variable.field.startswith(starts))
    return next(fitting, REST)


def _row(names: Sequence[Variable]) -> list[str]:
    main, *others = names
    schema = _schema(main)
    secret = " 🔒" if schema.get("format") == "password" else ""
    also = "".join(f", also {code(other.name)}" for other in others)
    value = ", ".join(_values(schema))
    return [f"{code(main.name)}{also}{secret}", _default(main, schema), value, main.description]


def _schema(variable: Variable) -> dict[str, Any]:
    """Of the value itself, be it optional or not."""
    schema: dict[str, Any] = _properties(variable.section)[variable.field]
    own: dict[str, Any]
    [own] = [one for one in schema.get("anyOf", [{}]) if one.get("type") != "null"]
    return {**schema, **own}


@cache
def _properties(section: str | None) -> dict[str, Any]:
    found: dict[str, Any] = SECTIONS[section].model_json_schema(by_alias=False)["properties"]
    return found


def _default(variable: Variable, schema: dict[str, Any]) -> str:
    if variable.section is None and variable.field in BY_MACHINE:
        return BY_MACHINE[variable.field]
    value = schema["default"]
    if value is None or value == []:
        return "none"
    return code(str(value).lower() if isinstance(value, bool) else _number(value))


def _values(schema: dict[str, Any]) -> Iterator[str]:
    if "enum" in schema:
        yield " or ".join(map(code, schema["enum"]))
    elif schema["type"] == "array":
        yield "texts, separated by commas"
    else:
        yield FORMATS.get(schema.get("format", ""), TYPES.get(schema["type"], "text"))
    for name, words in LIMITS.items():
        if name in schema:
            yield words.format(_number(schema[name]))


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
