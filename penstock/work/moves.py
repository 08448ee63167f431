"""Moves of work items from one state to another, told to whoever mirrors them after the commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from penstock.documents import Fault
from penstock.work.items import ItemStatus, WorkItem


@dataclass(frozen=True, slots=True)
class Move:
    """An item as it stands now."""

    item: WorkItem
    status: ItemStatus
    at: datetime
    """When it came to stand so, by the database's clock: of two moves the later one holds."""
    run_at: datetime | None = None
    """When it is due, while it waits for a retry."""
    fault: Fault | None = None
    """What it died of."""


class Dispatch(Protocol):
    """Hears of moves after they are committed. It must not raise: the work goes on without it."""

    def moved(self, moves: Sequence[Move]) -> None: ...
