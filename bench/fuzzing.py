"""Batches of documents damaged at random, sent to a pool, and what came of them."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Protocol

from penstock.documents import ExtractedText, Fault, RawDocument
from penstock.errors import ErrorClass
from penstock.text.extract import Outcome
from tests.hostile.corpus import random_label
from tests.hostile.mutations import damage
from tests.hostile.seeds import Seed

BATCH = 60
GOOD_EVERY = 6
GOOD_TEXT = "The mill grinds on."
MOST_DAMAGES = 3
SUSPICIOUS = (ErrorClass.UNKNOWN, ErrorClass.TIMEOUT)


class Pool(Protocol):
    """What is fuzzed."""

    def extract_many(self, documents: Sequence[RawDocument], /) -> list[Outcome]: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """Documents that one number makes, always the same."""

    number: int
    documents: Sequence[RawDocument]
    options: str
    """Those of the command that makes it again."""

    def only(self, raw: RawDocument) -> "Batch":
        return replace(self, documents=[raw])


@dataclass(slots=True)
class Tally:
    """What has been seen so far."""

    classes: Counter[str] = field(default_factory=Counter)
    failures: int = 0
    suspects: int = 0
    slowest: tuple[float, Batch] | None = None


def make_batch(number: int, seeds: Sequence[Seed]) -> Batch:
    random = Random(number)
    documents = [
        RawDocument(f"good-{number}-{place}.txt", GOOD_TEXT.encode())
        if place % GOOD_EVERY == 0
        else _damaged(random, random.choice(seeds), f"{number}-{place}")
        for place in range(BATCH)
    ]
    return Batch(number, documents, f"--seed {number}")


def _damaged(random: Random, seed: Seed, name: str) -> RawDocument:
    recipe = [seed.name]
    for _ in range(random.randint(1, MOST_DAMAGES)):
        if seed.content:
            how, content = damage(random, seed)
            seed = Seed(seed.name, seed.suffix, content)
            recipe.append(how)
    suffix, media_type = random_label(random, seed)
    return RawDocument(f"{name}-{'-'.join(recipe)}{suffix}", seed.content, media_type)


class Fuzzer:
    """Sends batches, counts what comes back, and keeps what ought not to have."""

    def __init__(self, pool: Pool, folder: Path, batch_seconds: float) -> None:
        self.tally = Tally()
        self._pool = pool
        self._folder = folder
        self._batch_seconds = batch_seconds
        self._thread = ThreadPoolExecutor(1)

    def run(self, batch: Batch) -> bool:
        """Send one batch; False when the pool hangs and is of no more use."""
        started = time.monotonic()
        work = self._thread.submit(self._pool.extract_many, batch.documents)
        try:
            outcomes = work.result(self._batch_seconds)
        except TimeoutError:
            self._fail(batch, f"no outcome after {self._batch_seconds:g} s")
            return False
        except Exception as error:
            self._fail(batch, f"the pool raised {type(error).__name__}: {error}")
            return True
        self._judge(batch, outcomes)
        seconds = time.monotonic() - started
        if self.tally.slowest is None or seconds > self.tally.slowest[0]:
            self.tally.slowest = (seconds, batch)
        return True

    def close(self) -> None:
        """Wait for the thread; close what it waits for first."""
        self._thread.shutdown()

    def _judge(self, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        if len(outcomes) != len(batch.documents):
            self._fail(batch, f"{len(outcomes)} outcomes for {len(batch.documents)} documents")
        for raw, outcome in zip(batch.documents, outcomes, strict=False):
            kind = outcome.kind if isinstance(outcome, Fault) else None
            self.tally.classes[kind or "text"] += 1
            if raw.name.startswith("good-") and not _is_good(outcome):
                self._fail(batch.only(raw), f"a good document ended as {outcome}")
            elif kind in SUSPICIOUS:
                self.tally.suspects += 1
                self._save(batch.only(raw), str(outcome))

    def _fail(self, batch: Batch, reason: str) -> None:
        self.tally.failures += 1
        self._save(batch, reason)

    def _save(self, batch: Batch, reason: str) -> None:
        """The number that makes the batch again, and the very bytes."""
        self._folder.mkdir(parents=True, exist_ok=True)
        recipe = {
            "repeat": f"python -m bench.fuzz {batch.options} --seconds 0",
            "reason": reason,
            "documents": [(raw.name, raw.media_type) for raw in batch.documents],
        }
        path = self._folder / f"{batch.number}-{self.tally.failures}-{self.tally.suspects}"
        path.with_suffix(".json").write_text(json.dumps(recipe, indent=2))
        if len(batch.documents) == 1:
            path.with_suffix(".bin").write_bytes(batch.documents[0].content)


def _is_good(outcome: Outcome) -> bool:
    return isinstance(outcome, ExtractedText) and outcome.text == GOOD_TEXT
