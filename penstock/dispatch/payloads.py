"""The JSON that stands for a job in Redis: the same job always gives the same text."""

import json
from datetime import UTC, datetime

from penstock.documents import Fault

_ERROR_CHARACTERS = 2000
_FIELDS = {"job_id", "node_id", "tenant_id", "priority", "attempts", "enqueued_at"}
_JSON = json.JSONEncoder(separators=(",", ":"))


def write_payload(
    job_id: int, node_id: str, tenant_id: str, priority: int, attempts: int, enqueued_at: datetime
) -> str:
    return _JSON.encode(
        {
            "job_id": job_id,
            "node_id": node_id,
            "tenant_id": tenant_id,
            "priority": priority,
            "attempts": attempts,
            "enqueued_at": _write_time(enqueued_at),
        }
    )


def add_death(payload: str, at: datetime, fault: Fault | None) -> str:
    """The same with what it died of, for the DLQ."""
    error = f"{fault.kind}: {fault.message}" if fault else "unknown"
    death = {"error": error[:_ERROR_CHARACTERS], "failed_at": _write_time(at)}
    return _JSON.encode(json.loads(payload) | death)


def is_payload(text: str) -> bool:
    """Whether this is one of ours."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and found.keys() >= _FIELDS


def _write_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
