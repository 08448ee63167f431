"""Labelled documents: a text or a file, and the fields that are right for it.

A gold file has one JSON object a line: `id`, `fields`, and `text` or a `file` beside the gold file;
also `profile`, `url`, `title` and `date` (the day the document is from) where they are known.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from penstock.errors import UsageError
from penstock.evaluation.comparison import known_fields
from penstock.llm.profiles import profile_named

# Of what comes with Penstock: rules and prompts are made with one half, and judged by the other.
HALVES = ("dev", "heldout")
SETS = ("resumes", "postings")
DATE = "date"
"""The metadata that says which day a document is from."""


@dataclass(frozen=True, slots=True)
class GoldRecord:
    """A document and the fields that are right for it.

    Only the fields that are named are judged: one that is null or an empty list says that there is
    nothing to find, one that is left out says nothing. So a correction of one field is gold too.
    """

    id: str
    fields: Mapping[str, Any]
    profile: str | None = None
    """None: the one that its content shows."""
    text: str | None = None
    file: Path | None = None
    """Its bytes, when there is no text."""
    url: str | None = None
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GoldSet:
    """Labelled documents that are judged together."""

    name: str
    records: tuple[GoldRecord, ...]


class _Line(BaseModel):
    """A line of a gold file."""

    model_config = ConfigDict(extra="forbid")

    id: str
    fields: dict[str, Any]
    profile: str | None = None
    text: str | None = None
    file: str | None = None
    url: str | None = None
    title: str | None = None
    date: str | None = None
    metadata: dict[str, Any] = {}

    @model_validator(mode="after")
    def _has_one_document(self) -> "_Line":
        if (self.text is None) == (self.file is None):
            raise ValueError("it needs either text or file")
        return self


CORRECTIONS = "corrections"
"""The name of what people have corrected or accepted in the store."""


def read_gold(names: Sequence[str]) -> list[GoldSet]:
    """The labelled documents of these files; a name such as `resumes` or `postings-dev` stands for
    those that come with Penstock, and no name for all of these."""
    found = [one for name in names or SETS for one in _read_named(name)]
    if empty := next((one.name for one in found if not one.records), None):
        raise UsageError(f"{empty} holds no labelled document: write one JSON object a line")
    return found


def _read_named(name: str) -> list[GoldSet]:
    built_in = {f"{one}-{half}" for one in SETS for half in HALVES}
    if name in SETS:
        return [_read_built_in(f"{name}-{half}") for half in HALVES]
    if name in built_in:
        return [_read_built_in(name)]
    path = Path(name)
    if not path.is_file():
        known = ", ".join(sorted({*SETS, *built_in}))
        raise UsageError(f"there is no gold file {name}: name a JSONL file, or one of {known}")
    return [GoldSet(path.stem, read_gold_file(path))]


def _read_built_in(name: str) -> GoldSet:
    path = Path(str(files(__package__).joinpath("gold", f"{name}.jsonl")))
    return GoldSet(name, read_gold_file(path))


def read_gold_file(path: Path) -> tuple[GoldRecord, ...]:
    """The records of a gold file; UsageError names the line that cannot be used."""
    records: dict[str, GoldRecord] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        record = _read_line(line, path.parent, where)
        if record.id in records:
            raise UsageError(f"{where}: the id {record.id!r} is there twice")
        records[record.id] = record
    return tuple(records.values())


def gold_set(name: str, values: Iterable[Mapping[str, Any]]) -> GoldSet:
    """The set of these records, each as a line of a gold file has it."""
    return GoldSet(name, tuple(_record(one, Path(), name) for one in values))


def _read_line(line: str, folder: Path, where: str) -> GoldRecord:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{where} is not JSON ({error})") from None
    return _record(value, folder, where)


def _record(value: Any, folder: Path, where: str) -> GoldRecord:
    try:
        read = _Line.model_validate(value)
    except ValidationError as error:
        fault = error.errors()[0]
        at = ".".join(map(str, fault["loc"]))
        raise UsageError(f"{where}: {at and f'{at}: '}{fault['msg']}") from None
    if read.profile is not None:
        check_fields(read.profile, read.fields, where)
    path = None if read.file is None else folder / read.file
    if path is not None and not path.is_file():
        raise UsageError(f"{where}: there is no file {path}")
    metadata = read.metadata | ({DATE: read.date} if read.date else {})
    return GoldRecord(
        read.id, read.fields, read.profile, read.text, path, read.url, read.title, metadata
    )


def check_fields(profile: str, fields: Mapping[str, Any], where: str) -> None:
    """UsageError when the profile has no such field."""
    known = known_fields(profile_named(profile))
    if unknown := sorted(fields.keys() - {*known}):
        raise UsageError(
            f"{where}: the profile {profile} has no field {unknown[0]!r}: "
            f"use some of {', '.join(known)}"
        )
