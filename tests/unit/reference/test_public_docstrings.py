"""What programs import says what it does and what its parameters are."""

import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import FunctionType
from typing import Any

import pytest

import penstock
import penstock.testing
import penstock.worker

# Types of values, not things to call; Answer has its text in a comment of its own.
_VALUES = {"Answer", "Confidence"}


def public_members() -> Iterator[tuple[str, Any, str]]:
    """Every public class, function and method: its name, itself, and the text about it."""
    for module in (penstock, penstock.testing, penstock.worker):
        for name in sorted(set(module.__all__) - _VALUES):
            found = getattr(module, name)
            # What a class inherits is documented where it comes from.
            bases = inspect.getmro(found) if inspect.isclass(found) else [found]
            text = "\n".join(inspect.getdoc(base) or "" for base in bases if base is not object)
            yield f"{module.__name__}.{name}", found, text
            if inspect.isclass(found):
                for member, function in sorted(vars(found).items()):
                    if isinstance(function, FunctionType | property) and member[0] != "_":
                        label = f"{module.__name__}.{name}.{member}"
                        yield label, function, inspect.getdoc(function) or ""


MEMBERS = list(public_members())


@pytest.mark.parametrize(
    ("found", "text"), [one[1:] for one in MEMBERS], ids=[m[0] for m in MEMBERS]
)
def test_a_public_name_says_what_it_does_and_names_its_parameters(found: Any, text: str) -> None:
    assert len(text) > 10
    if isinstance(found, property) or is_plain_value(found):
        return
    parameters = inspect.signature(found).parameters
    assert [name for name in parameters if name != "self" and name not in text] == []


def is_plain_value(found: Any) -> bool:
    """A dataclass that is only read documents its fields where they stand."""
    return is_dataclass(found) and "Args:" not in (inspect.getdoc(found) or "")
