"""Word lists, and finding many known phrases in one pass over a text."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple


@cache
def read_table(name: str) -> dict[str, tuple[str, ...]]:
    """Entries written `name = other, other; name = other`, in order; a name given twice has both.

    A line without an equals sign holds names that have no other.
    """
    table: dict[str, tuple[str, ...]] = {}
    for line in _lines(name):
        for written in line.split("; ") if " = " in line else line.split(", "):
            entry, _, others = written.partition(" = ")
            table[entry] = table.get(entry, ()) + tuple(filter(None, others.split(", ")))
    return table


@cache
def read_words(name: str) -> frozenset[str]:
    """Words separated by spaces or line ends."""
    return frozenset(word for line in _lines(name) for word in line.split())


def _lines(name: str) -> Iterator[str]:
    text = files(__package__).joinpath("words", f"{name}.txt").read_text(encoding="utf-8")
    return (line for line in text.splitlines() if line and not line.startswith("#"))


Trie = dict[str, "Trie"]
_END = ""
_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


class PhraseHit(NamedTuple):
    """A known phrase at its place in the text."""

    name: str
    start: int
    end: int


class PhraseTable:
    """Phrases in lower case, each with the name it stands for."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = {_normalise(phrase): name for phrase, name in names.items()}
        # Words of an address (me@python.org) and parts of other words are no mention.
        self._pattern = re.compile(
            rf"(?<![\w@.+#-]){alternation(self._names)}(?![\w@+#]|\.\w)", re.ASCII
        )

    def find(self, lowered: str) -> Iterator[PhraseHit]:
        """Every mention in a text in lower case, in order, the longest phrase at each place."""
        for match in self._pattern.finditer(lowered):
            phrase = match[0]
            name = self._names.get(phrase) or self._names[_normalise(phrase)]
            yield PhraseHit(name, *match.span())

    def name_of(self, lowered: str) -> str | None:
        """The name that exactly this phrase stands for."""
        return self._names.get(_normalise(lowered))

    def mentions_any(self, lowered: str) -> bool:
        """Whether any of the phrases occurs."""
        return self._pattern.search(lowered) is not None


@cache
def read_phrases(name: str) -> PhraseTable:
    """The phrases of a table, each with the name of its entry."""
    entries = read_table(name).items()
    return PhraseTable({phrase: entry for entry, phrases in entries for phrase in phrases})


def spellings_of(name: str) -> tuple[str, ...]:
    """Other words for the same thing, by the tables of names: "JS" for "JavaScript"."""
    return _spellings().get(name.casefold(), ())


@cache
def _spellings() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for table in ("skills", "industries", "employment"):
        for entry, others in read_table(table).items():
            own = tuple(one.lstrip("!~") for one in (entry, *others))
            for one in own:
                found[one.casefold()] = found.get(one.casefold(), ()) + own
    return found


def lower_in_place(text: str) -> str:
    """Lower case, with every character at the position it had."""
    lowered = text.lower()
    # A few letters (İ) become two; lowering never shortens, so equal lengths mean aligned.
    return lowered if len(lowered) == len(text) else text.translate(_ASCII_LOWER)


def _normalise(phrase: str) -> str:
    return " ".join(phrase.replace("-", " ").split())


def alternation(phrases: Iterable[str]) -> str:
    """A pattern shaped as a trie: far fewer branches are tried than one per phrase."""
    root: Trie = {}
    for phrase in phrases:
        node = root
        for char in phrase:
            node = node.setdefault(char, {})
        node[_END] = {}
    return _pattern_of(root)


def _pattern_of(node: Trie) -> str:
    branches = [
        (r"[\s-]+" if char == " " else re.escape(char)) + _pattern_of(child)
        for char, child in sorted(node.items())
        if char != _END
    ]
    if not branches:
        return ""
    inner = f"(?:{'|'.join(branches)})"
    return f"{inner}?" if _END in node else inner
