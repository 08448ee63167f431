"""The sources of a tenant: their settings, in the database and in YAML files."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import sqlalchemy as sa
import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from penstock.errors import NotFound, UsageError
from penstock.store.database import Tx
from penstock.store.schema import ACTIVE_RUN, nodes, runs, sources

Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
Title = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class SourceSettings(BaseModel):
    """How a source is listed and processed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    include_titles: tuple[Title, ...] = Field(
        (), description="Only documents whose title has one of these words; * stands for a part"
    )
    exclude_titles: tuple[Title, ...] = Field(
        (), description="No documents whose title has one of these words"
    )
    link_pattern: Line | None = Field(
        None, description="Only pages whose address matches this regular expression"
    )
    profile: Line | None = Field(None, description="Fields to extract; empty: by content")
    force: bool = Field(False, description="Process unchanged documents too, in every run")


class SourceDefinition(SourceSettings):
    """A source in a YAML file or a request."""

    name: Annotated[Line, StringConstraints(max_length=200)] = Field(
        description="Its name: a company, a collection"
    )
    location: Line = Field(description="A folder, a file, a URL, or s3://bucket/prefix")
    kind: Line | None = Field(None, description="Its kind; empty: detected")
    tenant: Line | None = Field(None, description="Its tenant; empty: PENSTOCK_TENANT")

    @property
    def settings(self) -> SourceSettings:
        return SourceSettings(**{name: getattr(self, name) for name in SourceSettings.model_fields})


@dataclass(frozen=True, slots=True)
class Source:
    """A source in the database."""

    id: int
    tenant_id: str
    name: str
    kind: str
    location: str
    settings: SourceSettings
    created_at: datetime

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "location": self.location,
            "tenant": self.tenant_id,
            **self.settings.model_dump(mode="json"),
        }


def put_source(
    tx: Tx, tenant_id: str, name: str, kind: str, location: str, settings: SourceSettings
) -> Source:
    """Add a source, or change the one with this name."""
    known = _find(tx, tenant_id, sources.c.name == name, removed=True)
    # A source that was ingested by its location gets a name now, and keeps its documents.
    known = known or _find(
        tx, tenant_id, sources.c.location == location, sources.c.name == location
    )
    values = {"name": name, "location": location, "settings": settings.model_dump(mode="json")}
    if known is None:
        row = values | {"tenant_id": tenant_id, "kind": kind, "created_at": tx.now}
        tx.execute(sa.insert(sources).values(row))
    else:
        _refuse_other_kind(tx, known, kind)
        changed = values | {"kind": kind, "removed_at": None}
        tx.execute(sa.update(sources).where(sources.c.id == known.id).values(changed))
    return read_source(tx, tenant_id, name)


def list_sources(tx: Tx, tenant_id: str) -> list[Source]:
    query = _select(tenant_id).order_by(sources.c.name)
    return [_source(row) for row in tx.execute(query)]


def read_source(tx: Tx, tenant_id: str, name: str) -> Source:
    found = find_source(tx, tenant_id, name)
    if found is None:
        raise NotFound(f"there is no source {name!r}; `penstock source list` shows them")
    return found


def find_source(tx: Tx, tenant_id: str, name: str) -> Source | None:
    """By its name or, when only one source has it, by its location."""
    named = _find(tx, tenant_id, sources.c.name == name)
    if named is not None:
        return named
    there = tx.execute(_select(tenant_id).where(sources.c.location == name).limit(2)).all()
    return _source(there[0]) if len(there) == 1 else None


def remove_source(tx: Tx, tenant_id: str, name: str) -> Source:
    """Remove a source; its documents and runs stay."""
    found = read_source(tx, tenant_id, name)
    active = sa.select(runs.c.id).where(runs.c.source_id == found.id, ACTIVE_RUN)
    run_id = tx.execute(active).scalar()
    if run_id is not None:
        raise UsageError(
            f"run {run_id} of {found.name} is active: wait until it ends, or abort it with "
            f"`penstock runs abort {run_id}`"
        )
    tx.execute(sa.update(sources).where(sources.c.id == found.id).values(removed_at=tx.now))
    return found


def _refuse_other_kind(tx: Tx, known: Source, kind: str) -> None:
    """Listed as another kind, a source would seem to have lost all its documents."""
    documents = sa.select(sa.literal(1)).where(nodes.c.source_id == known.id).limit(1)
    if known.kind != kind and tx.execute(documents).first() is not None:
        raise UsageError(
            f"{known.name} has documents as a {known.kind} and cannot become a {kind}: "
            "give the new one another name"
        )


def _find(
    tx: Tx, tenant_id: str, *conditions: sa.ColumnElement[bool], removed: bool = False
) -> Source | None:
    row = tx.execute(_select(tenant_id, removed=removed).where(*conditions)).first()
    return None if row is None else _source(row)


def _select(tenant_id: str, *, removed: bool = False) -> sa.Select[Any]:
    query = sa.select(sources).where(sources.c.tenant_id == tenant_id)
    return query if removed else query.where(sources.c.removed_at.is_(None))


def _source(row: sa.Row[Any]) -> Source:
    return Source(
        row.id,
        row.tenant_id,
        row.name,
        row.kind,
        row.location,
        SourceSettings.model_validate(row.settings),
        row.created_at,
    )


def read_sources(path: Path) -> list[SourceDefinition]:
    """Every source of the file; UsageError names the first mistake."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"could not read {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    entries = content.get("sources") if isinstance(content, dict) else content
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{path} has no list under `sources:`")
    return [define(f"{path}, source {n}", entry) for n, entry in enumerate(entries, start=1)]


def write_sources(found: Iterable[Source]) -> str:
    """The sources as YAML that `read_sources` accepts."""
    entries = [
        {name: value for name, value in source.as_json().items() if value not in (None, False, [])}
        for source in found
    ]
    text = _dump(entries, allow_unicode=True)
    # Control and formatting characters, which terminals interpret, are written as escapes.
    control = any(unicodedata.category(one) in ("Cc", "Cf") for one in text if one != "\n")
    return _dump(entries, allow_unicode=False) if control else text


def define(what: str, entry: Any) -> SourceDefinition:
    """A source from plain values; UsageError names the first mistake in one line."""
    try:
        return SourceDefinition.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise UsageError(f"{what}: {where}: {first['msg']}") from None


def _dump(entries: list[dict[str, Any]], *, allow_unicode: bool) -> str:
    text: str = yaml.safe_dump({"sources": entries}, sort_keys=False, allow_unicode=allow_unicode)
    return text
