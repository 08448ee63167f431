"""What children are asked to do with each input."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Input = TypeVar("Input")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Job(Generic[Input, Result]):
    """A function to call on every input, and how to speak of it."""

    function: str
    """`module:function`, for children to find it by. It takes an input and the options by name,
    and returns a Result or a Fault, or raises DocumentFault."""
    doing: str
    """What a child is at, for messages: "extracting its text"."""
    name_of: Callable[[Input], str]
    """What people call an input."""
    size_of: Callable[[Input], int]
    """About how many bytes an input takes in a message."""
    options: Mapping[str, Any] = field(default_factory=dict)
