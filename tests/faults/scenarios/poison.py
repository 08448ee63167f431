"""A document that kills the worker process that reads it, every time."""

from collections.abc import Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from penstock.store.schema import attempts, run_documents, work_items
from tests.faults.scenarios.audit import Audit
from tests.faults.scenarios.scene import Scene, open_scenes
from tests.faults.scenarios.waiting import wait_for

DOCUMENTS = 24
WORKERS = 3
DEFAULT_RESCUES = 5
# An extractor of a user's own, in the worst way there is: it takes its worker along.
_EXTRACTOR = """
import os, psutil
from penstock import extractor

@extractor(suffixes=[".poison"])
def read_poison(raw):
    server_of_children = psutil.Process(os.getppid())
    server_of_children.parent().kill()
"""


@dataclass(frozen=True, slots=True)
class Poisoned:
    """What a poisonous document cost."""

    audit: Audit
    deaths: int
    error: str
    history: int
    """Lines in the history of the dead item: one for each death."""

    @property
    def problems(self) -> list[str]:
        found = list(self.audit.problems)
        if self.history != self.deaths:
            found.append(f"{self.history} lines of history for {self.deaths} deaths")
        return found

    def __str__(self) -> str:
        return (
            f"a document that kills its worker: {self.deaths} deaths, then a dead letter "
            f"({self.error}), {self.audit.documents - 1} others: "
            f"{', '.join(self.problems) or 'all done'}"
        )


def work_with_poison(scene: Scene, *, max_rescues: int) -> Poisoned:
    """Workers that die are started again, as a supervisor would, until the run has ended."""
    extractors = scene.folder / "poisonous.py"
    extractors.write_text(_EXTRACTOR, encoding="utf-8")
    settings = {
        "PENSTOCK_EXTRACTORS": str(extractors),
        "PENSTOCK_MAX_RESCUES": str(max_rescues),
    }
    source = scene.write_documents(DOCUMENTS - 1)
    (source / "deadly.poison").write_text("It kills whoever reads it.", encoding="utf-8")
    hands = [scene.hire(settings=settings) for _ in range(WORKERS)]
    scene.wait_until_ready(*hands)
    run_id = scene.admit(source)
    deaths = 0

    def replace_the_dead() -> bool:
        nonlocal deaths
        for place, hand in enumerate(hands):
            if not hand.is_alive():
                deaths += 1
                hands[place] = scene.hire(settings=settings)
        return scene.is_over(run_id)

    wait_for(replace_the_dead, 60 + 15 * max_rescues, f"run {run_id} to end")
    return _look(scene, run_id, deaths)


def _look(scene: Scene, run_id: int, deaths: int) -> Poisoned:
    with scene.app.database.read() as tx:
        failed = sa.and_(work_items.c.run_id == run_id, work_items.c.status == "failed")
        item = tx.execute(sa.select(work_items.c.id).where(failed)).one()
        history = sa.select(sa.func.count()).where(attempts.c.item_id == item.id)
        lines = tx.execute(history.select_from(attempts)).scalar_one()
        c = run_documents.c
        wrong = sa.and_(c.run_id == run_id, c.status == "error")
        document = tx.execute(sa.select(c.external_id, c.reason).where(wrong)).one()
    error = f"{document.external_id}: {document.reason}"
    return Poisoned(scene.audit(run_id, DOCUMENTS, failed=1), deaths, error, lines)


def endure_all() -> Iterator[Poisoned]:
    for scene in open_scenes():
        yield work_with_poison(scene, max_rescues=DEFAULT_RESCUES)
