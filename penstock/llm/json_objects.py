"""The JSON objects in what a model says: bare, fenced, or in the middle of a chat."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from penstock.llm.cleaning import mend_text

MAX_CHARS = 200_000
"""No model is let to say more; what is longer is not read."""
MAX_DEPTH = 32
"""No answer nests deeper; what does could not be stored."""
_MAX_OBJECTS = 100
_MAX_WHOLE = 2**63
_OBJECT_START = re.compile(r'\{(?=\s*+["}])')
# Texts are matched to be passed over: a comma or a blank inside one is what the document says.
_BLEMISH = re.compile(
    r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|,(?=\s*+[}\]])|[^\S \t\r\n]|[\u200b\u2060\ufeff]', re.DOTALL
)

JsonObject = dict[str, Any]


def read_objects(content: str) -> Iterator[JsonObject | None]:
    """Every object at the top of an answer, in order; None where one starts but is broken.

    Thinking aloud is passed over. The time taken grows with the length, whatever the content.
    """
    if len(content) > MAX_CHARS:
        return
    try:
        whole = _mend(json.JSONDecoder(**_NUMBERS).decode(content.strip("\ufeff \t\r\n")))
    except (ValueError, RecursionError):
        yield from _scan(_tidy(_answer_part(content)))
        return
    yield from (one for one in (whole if isinstance(whole, list) else [whole]) if _is_object(one))


def _scan(text: str) -> Iterator[JsonObject | None]:
    decoder = json.JSONDecoder(**_NUMBERS)
    position = 0
    # Each failure costs as much as all of the text before it, so that their number is limited.
    for _ in range(_MAX_OBJECTS):
        start = _OBJECT_START.search(text, position)
        if start is None:
            return
        try:
            found, position = decoder.raw_decode(text, start.start())
            yield _mend(found)
        except json.JSONDecodeError as error:
            # What stands before the fault is part of the broken object, not an answer.
            position = max(error.pos, start.end())
            yield None
        except (ValueError, RecursionError):
            yield None
            return


def _answer_part(content: str) -> str:
    """What comes after the model's thinking; nothing, if it never stopped."""
    if content.lstrip().startswith("<think>"):
        return content.partition("</think>")[2]
    return content


def _tidy(text: str) -> str:
    """From the first brace on, without commas before a closing one and without odd blanks."""
    start = max(text.find("{"), 0)
    return _BLEMISH.sub(lambda found: _replace(found[0]), text[start:])


def _replace(blemish: str) -> str:
    if blemish.startswith('"'):
        return blemish
    return "" if blemish == "," else " "


def _mend(value: Any, depth: int = 0) -> Any:
    """The value with every text storable."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return mend_text(value)
    if isinstance(value, list):
        return [_mend(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {mend_text(key): _mend(item, depth + 1) for key, item in value.items()}
    return value


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _read_whole_number(digits: str) -> int | float | None:
    # Python refuses to read thousands of digits; databases stop at nineteen.
    if len(digits) < 20 and -_MAX_WHOLE <= (number := int(digits)) < _MAX_WHOLE:
        return number
    return _read_number(digits)


def _read_number(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


_NUMBERS: dict[str, Any] = {
    "parse_int": _read_whole_number,
    "parse_float": _read_number,
    # NaN and Infinity are no JSON, and say no more than null.
    "parse_constant": lambda _: None,
}
