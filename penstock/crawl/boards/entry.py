"""One object of a board's JSON, read without trusting its types."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# What databases and UTF-8 refuse; JSON can spell all of it.
_REFUSED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")

_LARGEST_NUMBER = 10**15


class BoardError(Exception):
    """The answer of a board is not what such a board answers."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A JSON object. A value of another type than asked for counts as missing."""

    values: Mapping[str, Any]

    def line(self, key: str) -> str:
        """A text on one line; empty when there is none."""
        return _clean_line(self.values.get(key))

    def lines(self, key: str) -> list[str]:
        """The texts of a list that say something."""
        return [line for value in self._list(key) if (line := _clean_line(value))]

    def prose(self, key: str) -> str:
        """A long text, which may be missing but not something else: that would lose the posting."""
        value = self.values.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise BoardError(f"has a {key} that is not a text")
        return _REFUSED.sub("", value).strip()

    def identity(self, key: str) -> str:
        """A number or a text that names the object; empty when there is none."""
        value = self.values.get(key)
        return str(value) if isinstance(value, int) and value is not True else _clean_line(value)

    def number(self, key: str) -> int | float | None:
        """A number of a sane size, whole where it can be, so that 5 and 5.0 are written alike."""
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if not abs(value) <= _LARGEST_NUMBER:
            return None
        return int(value) if value == int(value) else value

    def says(self, key: str, flag: bool) -> bool:
        """Whether a value is this very flag; a missing one says neither."""
        return self.values.get(key) is flag

    def inside(self, key: str) -> "Entry":
        """The object under a key; an empty one when there is none."""
        value = self.values.get(key)
        return Entry(value if isinstance(value, dict) else {})

    def each(self, key: str) -> list["Entry"]:
        """The objects of the list under a key."""
        return [Entry(value) for value in self._list(key) if isinstance(value, dict)]

    def _list(self, key: str) -> list[Any]:
        value = self.values.get(key)
        return value if isinstance(value, list) else []


def _clean_line(value: Any) -> str:
    return " ".join(_REFUSED.sub("", value).split()) if isinstance(value, str) else ""
