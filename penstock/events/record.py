"""Writing events, in the transaction of what they tell about."""

from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa

from penstock.store.database import Tx
from penstock.store.schema import events

EventStage = Literal["ING", "CRL", "TXT", "LLM", "EMB"]
Level = Literal["INFO", "WARNING", "ERROR"]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a run's log."""

    tenant_id: str
    stage: EventStage
    message: str
    level: Level = "INFO"
    run_id: int | None = None
    node_id: str | None = None


def record(tx: Tx, *happened: Event) -> None:
    """Append events."""
    if happened:
        rows = [
            {
                "tenant_id": event.tenant_id,
                "run_id": event.run_id,
                "node_id": event.node_id,
                "stage": event.stage,
                "level": event.level,
                "message": event.message,
                "at": tx.now,
            }
            for event in happened
        ]
        tx.execute(sa.insert(events), rows)
