"""A batch of documents as a task's only argument."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from penstock.pipeline.steps import Steps

Input = TypeVar("Input")


class Batch(Generic[Input]):
    """Keys and inputs of one batch, with the steps that compute them.

    A plain class on purpose: Prefect walks into dataclasses and lists that it is given, in search
    of futures, and a batch of texts is a long way to walk.
    """

    def __init__(
        self, steps: Steps, label: str, keys: Sequence[str], inputs: Sequence[Input]
    ) -> None:
        self.steps = steps
        self.label = label
        self.keys = keys
        self.inputs = inputs
        self.computed = False
        """Set by whoever computes it: a result that comes without was taken from the cache."""

    def __str__(self) -> str:
        return f"{self.label}, {len(self.keys)} documents"
