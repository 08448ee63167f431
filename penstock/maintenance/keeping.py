"""How long things are kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Keeping:
    """Days after which things are forgotten; 0 keeps them for ever."""

    events: int = 30
    jobs: int = 30
    dead_letters: int = 90
    run_documents: int = 180
    model_calls: int = 0
    expired_raw: int = 90
    old_raw: int = 30

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """From settings named `keep_…_days`."""
        return cls(**{name: settings[f"keep_{name}_days"] for name in cls.__dataclass_fields__})


def before(now: datetime, days: int) -> datetime | None:
    """What is older than this has been kept for as long as it has to be; None: keep all."""
    return now - timedelta(days=days) if days else None
