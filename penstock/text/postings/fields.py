"""What a job posting says, before its body is split, and how its values are read from JSON."""

import html
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.text.characters import clean_line
from penstock.text.postings.blocks import Block, read_blocks

_DEPTH = 12


@dataclass(frozen=True, slots=True)
class Posting:
    """One job as a page describes it."""

    title: str
    body: tuple[Block, ...]
    """Everything told about the job, in reading order; it may hold the requirements too."""
    requirements: tuple[Block, ...] = ()
    """What the source keeps apart as requirements."""
    company: str = ""
    location: str = ""
    employment_type: str = ""
    salary: str = ""
    date_posted: str = ""
    valid_through: str = ""


def read_value(value: Any) -> list[Block]:
    """Blocks of a value that may be text, HTML, an object with such, or a list of them."""
    return [block for text in _texts(value, _DEPTH) for block in read_blocks(text)]


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, list) and depth:
        for item in value:
            yield from _texts(item, depth - 1)
    elif isinstance(value, Mapping) and depth:
        yield from _texts(value.get("description") or value.get("name"), depth - 1)
        yield from _texts(value.get("value"), depth - 1)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


def read_line(value: Any) -> str:
    """The value as one line of text."""
    return clean_line(" ".join(block.text for block in read_value(value)))


def join_names(value: Any) -> str:
    """The names in a value, each once."""
    return ", ".join(read_names(value))


def read_names(value: Any, depth: int = _DEPTH) -> list[str]:
    """The names in a value that may be a string, an object with a name, or a list of them."""
    if value is None or isinstance(value, bool) or not depth:
        return []
    if isinstance(value, list):
        return distinct(name for item in value for name in read_names(item, depth - 1))
    if isinstance(value, Mapping):
        keys = ("name", "legalName", "text", "label", "title", "value")
        return read_names(next((value[key] for key in keys if value.get(key)), None), depth - 1)
    return distinct([clean_line(html.unescape(str(value)))])


def distinct(names: Iterable[str]) -> list[str]:
    """The names that say something, each once, in their order."""
    return list(dict.fromkeys(filter(None, names)))


def read_place(place: Any) -> str:
    """A place as `city, region, country`, from an address or from its name."""
    if not isinstance(place, Mapping):
        return join_names(place)
    address = place.get("address") or place
    if not isinstance(address, Mapping):
        return join_names(address) or join_names(place)
    parts = (
        ("addressLocality", "city"),
        ("addressRegion", "region", "state"),
        ("addressCountry", "country"),
    )
    values = (next((address[key] for key in keys if address.get(key)), None) for keys in parts)
    names = (name for value in values for name in join_names(value).split(","))
    return ", ".join(distinct(map(str.strip, names))) or join_names(place)


def read_places(places: Any) -> str:
    """All places of a value that may be one or a list."""
    found = [read_place(place) for place in (places if isinstance(places, list) else [places])]
    return "; ".join(distinct(found))


def read_salary(salary: Any) -> str:
    """A salary as `from–to currency / unit`, from schema.org's MonetaryAmount or plain text."""
    if not isinstance(salary, Mapping):
        return join_names(salary)
    value = salary.get("value", salary)
    amounts = value if isinstance(value, Mapping) else {"value": value}
    bounds = [amounts.get("minValue"), amounts.get("maxValue")]
    figures = distinct(str(bound) for bound in bounds if bound is not None)
    amount = "–".join(figures) or join_names(amounts.get("value"))
    unit = join_names(amounts.get("unitText") or salary.get("unitText")).lower()
    currency = join_names(salary.get("currency") or amounts.get("currency"))
    return " ".join(filter(None, (amount, currency, unit and f"/ {unit}"))) if amount else ""
