"""The day a job was posted, from the ways in which boards write moments."""

import re
from datetime import UTC, datetime

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?!\d)", re.ASCII)


def read_day(text: str) -> str:
    """The day of an ISO moment, as its writer counts days; empty when it is none."""
    day = _DAY.match(text)
    return day[0] if day else ""


def day_of_milliseconds(milliseconds: int | float | None) -> str:
    """The day, in UTC, of a moment counted from 1970; empty when it is none."""
    if milliseconds is None:
        return ""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).date().isoformat()
    except (OverflowError, OSError, ValueError):
        return ""
