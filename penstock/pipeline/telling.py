"""What the path tells about documents, in the transaction in which it happens to them."""

from collections.abc import Iterable, Sequence

from penstock.documents import Stage
from penstock.events.record import Event, EventStage, Level, record
from penstock.store.database import Tx
from penstock.work.items import Verdict, WorkItem

_EVENT_STAGE: dict[Stage, EventStage] = {
    Stage.TEXT: "TXT",
    Stage.EXTRACT: "LLM",
    Stage.EMBED: "EMB",
}


def tell(tx: Tx, told: Iterable[tuple[WorkItem, str]]) -> None:
    """What was done to these documents."""
    record(tx, *[_event(item, message) for item, message in told])


def tell_failures(tx: Tx, verdicts: Sequence[Verdict]) -> None:
    """What went wrong with these, and whether they are tried again."""
    record(tx, *[_failure(verdict) for verdict in verdicts])


def message_of(verdict: Verdict) -> str:
    """What went wrong; the line it stands in names the document already."""
    name = verdict.item.payload.get("external_id", "")
    return verdict.fault.message.removeprefix(f"{name}: ")


def _failure(verdict: Verdict) -> Event:
    what = f"{verdict.fault.kind}: {message_of(verdict)}"
    if verdict.dead:
        return _event(verdict.item, what, level="ERROR")
    return _event(verdict.item, f"{what} (it is tried again)", level="WARNING")


def _event(item: WorkItem, message: str, *, level: Level = "INFO") -> Event:
    return Event(
        item.tenant_id,
        _EVENT_STAGE[item.stage],
        message,
        level=level,
        run_id=item.run_id,
        node_id=item.node_id,
        source=item.payload.get("source"),
        document=item.payload.get("external_id", item.node_id),
    )
