"""Takes a claimed batch through its stages, one after the other."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from penstock.documents import Fault, Stage
from penstock.errors import (
    ConfigurationError,
    ErrorClass,
    Interrupted,
    StagePaused,
    StoreError,
)
from penstock.pipeline.embed import Vectors, process_embed
from penstock.pipeline.extract import process_extract
from penstock.pipeline.stage import Observer, StageContext
from penstock.pipeline.text import SLICE_BYTES, process_text
from penstock.queue.items import Claim, WorkItem
from penstock.runs.lifecycle import try_finalize

log = logging.getLogger(__name__)
# Errors of the configuration and the store, and a stop; another attempt of an item changes nothing.
_NOT_OF_AN_ITEM = (ConfigurationError, StoreError, Interrupted)
# In which the stages of one batch are processed.
_ORDER = (Stage.TEXT, Stage.EMBED, Stage.EXTRACT)


@dataclass(frozen=True, slots=True)
class Processor:
    """The pipeline, for a worker that does these stages."""

    context: StageContext
    models: str
    vectors: Vectors
    stages: Collection[Stage] = tuple(Stage)

    def first_begun(self, items: Sequence[WorkItem]) -> Sequence[WorkItem]:
        """Which of these `process` begins at once and together, and not after others."""
        stage = next(one for one in _ORDER if any(item.stage is one for item in items))
        first = [item for item in items if item.stage is stage]
        if stage is Stage.TEXT and sum(item.payload.size or 0 for item in first) > SLICE_BYTES:
            return ()
        return first

    def process(self, claim: Claim) -> None:
        """Do everything this worker does to these items; finish their runs if they were the last.

        A configuration fault gives everything back untouched and is raised as StagePaused. Any
        other unexpected error is narrowed down to the item that causes it, which fails.
        """
        try:
            self._process_together(claim)
        except _NOT_OF_AN_ITEM:
            raise
        except Exception as error:
            log.exception("a batch of %d failed", len(claim.items))
            self._process_apart(claim, error)
        for run_id in {item.run_id for item in claim.items if item.run_id is not None}:
            try_finalize(self.context.database, run_id)

    def _process_together(self, claim: Claim) -> None:
        """What was claimed as an embedding is embedded first: it does not wait for extractions
        that happen to be in the same batch."""
        carried: list[WorkItem] = []
        own = {stage: [item for item in claim.items if item.stage is stage] for stage in Stage}
        for stage, items in (*((stage, own[stage]) for stage in _ORDER), (Stage.EMBED, [])):
            due = (*items, *[item for item in carried if item.stage is stage])
            carried = [item for item in carried if item.stage is not stage]
            if due:
                carried += self._process_stage(stage, replace(claim, items=due))

    def _process_apart(self, claim: Claim, error: Exception) -> None:
        """Each of what is left under this claim alone; one that fails alone costs an attempt."""
        left = self._held(claim)
        if len(claim.items) == 1 and left:
            self._fail(claim, left[0], error)
            return
        for item in left:
            alone = replace(claim, items=(item,))
            try:
                self._process_together(alone)
            except _NOT_OF_AN_ITEM:
                raise
            except Exception as own_error:
                self._fail(alone, item, own_error)

    def _fail(self, claim: Claim, item: WorkItem, error: Exception) -> None:
        """Fail the item, or the later item of its document that this claim has opened."""
        fault = Fault(ErrorClass.UNKNOWN, f"{type(error).__name__}: {error}")
        held = [one for one in self._held(claim) if one.node_id == item.node_id]
        self.context.commit(claim, [], [(one, fault) for one in held])

    def _held(self, claim: Claim) -> list[WorkItem]:
        with self.context.database.read() as tx:
            return self.context.queue.held(tx, claim)

    def _process_stage(self, stage: Stage, claim: Claim) -> list[WorkItem]:
        try:
            if stage is Stage.TEXT:
                return process_text(self.context, claim, self.stages)
            if stage is Stage.EXTRACT:
                return process_extract(self.context, claim, self.stages, self.models)
            return process_embed(self.context, claim, self.vectors)
        except StagePaused:
            self.give_back(claim)
            raise
        except ConfigurationError as error:
            self.give_back(claim)
            raise StagePaused(stage, str(error)) from error

    def observed_by(self, observer: Observer) -> "Processor":
        """The same processor, which reports to this observer."""
        return replace(self, context=replace(self.context, observer=observer))

    def give_back(self, claim: Claim) -> None:
        with self.context.database.write() as tx:
            self.context.queue.release(tx, claim.token)
