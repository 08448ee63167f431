"""Two ways in which web frameworks send their state: React's row stream, and flattened lists."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

_CALL = "self.__next_f.push("
_ROW = re.compile(r"([0-9a-f]+):(?:T([0-9a-f]{1,8}),)?")
_LEAST_VALUES = 8
_DEPTH = 24


def join_stream(scripts: Iterable[str]) -> str:
    """React's server components arrive as many calls that push pieces of one text."""
    return "".join(_pushed(script) for script in scripts if script.startswith(_CALL))


def _pushed(script: str) -> str:
    value = _load(script[len(_CALL) :].rstrip().rstrip(";").removesuffix(")"))
    return value[1] if isinstance(value, list) and value[1:] and isinstance(value[1], str) else ""


def _load(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def read_stream(stream: str) -> dict[str, Any]:
    """The stream's rows by the names other rows refer to them with (`$1e`)."""
    return {f"${name}": value for name, value in _rows(stream)}


def _rows(stream: str) -> Iterator[tuple[str, Any]]:
    """A row is `id:json` and a line end, or `id:T`, a length in bytes and that much text."""
    place = 0
    while place < len(stream):
        row = _ROW.match(stream, place)
        if row and row[2]:
            text = _first_bytes(stream, row.end(), int(row[2], 16))
            yield row[1], text
            place = row.end() + len(text)
        else:
            end = stream.find("\n", place) % (len(stream) + 1)
            if row:
                yield row[1], _load(stream[row.end() : end])
            place = end + 1


def _first_bytes(stream: str, start: int, count: int) -> str:
    return stream[start : start + count].encode("utf-8", "replace")[:count].decode(errors="ignore")


def expand_flat(value: Any) -> Any:
    """The state behind one long list in which numbers point at the list's other values."""
    if not isinstance(value, list) or len(value) < _LEAST_VALUES:
        return value
    objects = [item for item in value if isinstance(item, dict) and item]
    if not objects or any(type(ref) is not int for item in objects for ref in item.values()):
        return value
    return _Flat(value).follow(0, _DEPTH)


class _Flat:
    """Follows the numbers, each once per depth, so that a list that points at itself ends."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values
        self._found: dict[tuple[int, int], Any] = {}

    def follow(self, ref: Any, depth: int) -> Any:
        if type(ref) is not int or not 0 <= ref < len(self._values):
            return ref if isinstance(ref, str) else None
        if (ref, depth) not in self._found:
            self._found[ref, depth] = self._read(self._values[ref], depth)
        return self._found[ref, depth]

    def _read(self, value: Any, depth: int) -> Any:
        if not isinstance(value, dict | list):
            return value
        if not depth:
            return None
        if isinstance(value, list):
            return [self.follow(ref, depth - 1) for ref in value]
        return {self._key(key): self.follow(ref, depth - 1) for key, ref in value.items()}

    def _key(self, key: str) -> str:
        """Keys are plain, or `_` and the number of the text they are."""
        number = key.removeprefix("_")
        return str(self.follow(int(number), 0)) if number != key and number.isdecimal() else key
