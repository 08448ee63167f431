"""What the command `penstock worker` does beside working: it watches, and says how it goes."""

from typing import Any

import pytest

from entrypoints.cli import worker
from penstock.errors import StoreUnavailable

STATUS = {
    "stats": {"jobs_completed": 7, "jobs_failed": 0},
    "queue_depth": 3,
    "processing": 1,
    "trouble": None,
}


class FakeWorker:
    """A worker whose database is away for the first looks."""

    def __init__(self, looks: int, away: int) -> None:
        self._waits = iter([False] * looks + [True])
        self._away = iter([True] * away)

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        return next(self._waits)

    def get_status(self) -> dict[str, Any]:
        self._ask()
        return STATUS

    def has_work(self) -> bool:
        self._ask()
        return False

    def find_fault(self) -> str | None:
        return None

    def _ask(self) -> None:
        if next(self._away, False):
            raise StoreUnavailable("the database is being restarted")


def test_figures_are_printed_again_after_a_database_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(worker, "_print", said.append)
    found: Any = FakeWorker(looks=4, away=2)
    worker._watch(found)
    assert said == [
        "waits because the database is being restarted",
        "7 done, 0 failed, 3 waiting, 1 under way",
    ]


def test_a_database_outage_does_not_end_a_drain() -> None:
    found: Any = FakeWorker(looks=4, away=2)
    assert worker._drain(found) is None
    assert found.wait() is False, "it ended at the third of four looks"
