"""Takes a claimed batch through its stages, one after the other, without letting go of it."""

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace

from penstock.documents import Fault, Stage
from penstock.errors import (
    ConfigurationError,
    ErrorClass,
    Interrupted,
    StagePaused,
    StoreError,
)
from penstock.pipeline.batches import Line
from penstock.pipeline.closing import bury, close_failed
from penstock.pipeline.embed import process_embed
from penstock.pipeline.extract import process_extract
from penstock.pipeline.telling import tell_failures
from penstock.pipeline.text import process_text
from penstock.pipeline.vectors import Vectors
from penstock.runs.lifecycle import try_finalize
from penstock.work.items import Claim, WorkItem

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Processor:
    """The path, for a worker that does these stages."""

    line: Line
    models: str
    vectors: Vectors
    stages: Collection[Stage] = tuple(Stage)

    def process(self, claim: Claim) -> None:
        """Do everything this worker does to these items; finish their runs if they were the last.

        A configuration fault gives everything back untouched and goes up as StagePaused. Anything
        else that nobody foresaw is narrowed down to the item it comes from, which pays for it.
        """
        try:
            self._process_together(claim)
        except (ConfigurationError, StoreError, Interrupted):
            raise
        except Exception as error:
            log.exception("a batch of %d failed", len(claim.items))
            self._process_apart(claim, error)
        for run_id in {item.run_id for item in claim.items if item.run_id is not None}:
            try_finalize(self.line.database, run_id)

    def _process_together(self, claim: Claim) -> None:
        """What was claimed as an embedding is embedded first: nobody asked it to wait for the
        extractions that happen to be in the same batch."""
        carried: list[WorkItem] = []
        own = {stage: [item for item in claim.items if item.stage is stage] for stage in Stage}
        for stage, items in (
            (Stage.TEXT, own[Stage.TEXT]),
            (Stage.EMBED, own[Stage.EMBED]),
            (Stage.EXTRACT, own[Stage.EXTRACT]),
            (Stage.EMBED, []),
        ):
            due = (*items, *[item for item in carried if item.stage is stage])
            carried = [item for item in carried if item.stage is not stage]
            if due:
                carried += self._process_stage(stage, replace(claim, items=due)).items

    def _process_apart(self, claim: Claim, error: Exception) -> None:
        """Each of what is left under this claim alone; one that fails alone costs an attempt."""
        with self.line.database.read() as tx:
            left = self.line.queue.held(tx, claim)
        if len(claim.items) == 1 and left:
            self._blame(claim, left[0], error)
            return
        for item in left:
            alone = replace(claim, items=(item,))
            try:
                self._process_together(alone)
            except (ConfigurationError, StoreError, Interrupted):
                raise
            except Exception as own_error:
                self._blame(alone, item, own_error)

    def _blame(self, claim: Claim, item: WorkItem, error: Exception) -> None:
        fault = Fault(ErrorClass.UNKNOWN, f"{type(error).__name__}: {error}")
        with self.line.database.write() as tx:
            left = [
                held for held in self.line.queue.held(tx, claim) if held.node_id == item.node_id
            ]
            verdicts = self.line.queue.fail(tx, claim, [(held, fault) for held in left])
            dead = [verdict for verdict in verdicts if verdict.dead]
            bury(tx, dead)
            tell_failures(tx, verdicts)
            close_failed(tx, dead)
        self.line.tell([], verdicts)

    def _process_stage(self, stage: Stage, claim: Claim) -> Claim:
        try:
            if stage is Stage.TEXT:
                return process_text(self.line, claim, self.stages)
            if stage is Stage.EXTRACT:
                go_on = Stage.EMBED in self.stages
                return process_extract(self.line, claim, go_on=go_on, models=self.models)
            return process_embed(self.line, claim, self.vectors)
        except StagePaused:
            self.give_back(claim)
            raise
        except ConfigurationError as error:
            self.give_back(claim)
            raise StagePaused(stage, str(error)) from error

    def give_back(self, claim: Claim) -> None:
        with self.line.database.write() as tx:
            self.line.queue.release(tx, claim.token)
