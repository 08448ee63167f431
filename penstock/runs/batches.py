"""Cuts a stream into batches without ever holding more than one."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def in_batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of `size`, the last one shorter.

    If the stream raises, what it gave before is handed out first.
    """
    stream = iter(items)
    failure: Exception | None = None
    while failure is None:
        batch: list[Item] = []
        try:
            batch.extend(islice(stream, size))
        except Exception as error:
            failure = error
        if not batch and failure is None:
            return
        if batch:
            yield batch
    raise failure
