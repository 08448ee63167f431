"""Sources written down in a YAML file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from penstock.errors import UsageError
from penstock.sources.catalogue import Source
from penstock.sources.definition import SourceDefinition


def read_sources(path: Path) -> list[SourceDefinition]:
    """Every source of the file, or an error that names the first thing that is wrong with it."""
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
    """The same sources as a file that `read_sources` takes."""
    entries = [
        {name: value for name, value in source.as_json().items() if value not in (None, False, [])}
        for source in found
    ]
    return yaml.safe_dump({"sources": entries}, sort_keys=False, allow_unicode=True)


def define(what: str, entry: Any) -> SourceDefinition:
    """A source from plain values; an error says what is wrong with it, in one line."""
    try:
        return SourceDefinition.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise UsageError(f"{what}: {where}: {first['msg']}") from None
