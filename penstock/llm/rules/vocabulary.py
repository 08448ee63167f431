"""The word lists the rules work with, read from beside this module when first needed."""

from collections.abc import Iterator
from functools import cache
from importlib.resources import files


@cache
def read_table(name: str) -> dict[str, tuple[str, ...]]:
    """Entries written `name = other, other`, in order; a name given twice has both."""
    table: dict[str, tuple[str, ...]] = {}
    for line in _lines(name):
        entry, _, others = line.partition(" = ")
        table[entry] = table.get(entry, ()) + tuple(filter(None, others.split(", ")))
    return table


@cache
def read_words(name: str) -> frozenset[str]:
    """Words separated by spaces or line ends."""
    return frozenset(word for line in _lines(name) for word in line.split())


def _lines(name: str) -> Iterator[str]:
    text = files(__package__).joinpath("words", f"{name}.txt").read_text(encoding="utf-8")
    return (line for line in text.splitlines() if line and not line.startswith("#"))
