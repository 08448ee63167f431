"""Whatever is in a batch, every document gets its outcome, and the good ones get their text."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from penstock.documents import ExtractedText, Fault, RawDocument
from penstock.isolation.pool import ChildPool
from penstock.text.extract import WARMUP, Outcome, TextPool
from tests.hostile.corpus import damaged, hostile_corpus
from tests.hostile.seeds import make_seeds
from tests.hostile.traps import Case
from tests.hostile.witness import Witness

BATCH = 48
GOOD_EVERY = 6
CHILD_BYTES = 1024**3
GROWTH_BYTES = 150 * 1024**2
DEADLINE_SECONDS = 100.0

pytestmark = [pytest.mark.full_suite, pytest.mark.timeout(180)]


@dataclass(slots=True)
class Survey:
    """What became of the corpus, in words: the texts themselves would be megabytes."""

    wrong: list[str] = field(default_factory=list)
    faults: list[tuple[str, Fault]] = field(default_factory=list)
    good: int = 0
    documents: int = 0
    seconds: float = 0.0
    largest_child_bytes: int = 0
    grown_bytes: int = 0


@pytest.fixture(scope="module")
def survey() -> Survey:
    cases = hostile_corpus()
    found = Survey(documents=len(cases))
    with ChildPool(
        processes=2, timeout_seconds=10.0, memory_bytes=CHILD_BYTES, warmup=(WARMUP,)
    ) as children:
        pool = TextPool(children)
        pool.extract_many([good_document(0)])
        started = time.monotonic()
        with Witness() as witness:
            for batch in batches(cases):
                note(found, batch, pool.extract_many([case.raw for case in batch]))
        found.seconds = time.monotonic() - started
    found.largest_child_bytes = witness.largest_child_bytes
    found.grown_bytes = witness.grown_bytes
    return found


def good_document(number: int) -> RawDocument:
    return RawDocument(f"good-{number}.txt", f"Mill {number} grinds on.".encode())


def batches(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """The cases in batches, with good documents between them."""
    for start in range(0, len(cases), BATCH):
        batch = list(cases[start : start + BATCH])
        for place in range(0, len(batch), GOOD_EVERY):
            number = start + place
            good = Case(good_document(number), frozenset({None}), f"Mill {number} grinds on.")
            batch.insert(place, good)
        yield batch


def note(found: Survey, batch: Sequence[Case], outcomes: Sequence[Outcome]) -> None:
    assert len(outcomes) == len(batch)
    for case, outcome in zip(batch, outcomes, strict=True):
        if not is_right(case, outcome):
            found.wrong.append(f"{case.raw.name} ({case.raw.media_type}): {str(outcome)[:300]}")
        elif case.raw.name.startswith("good-"):
            found.good += 1
        if isinstance(outcome, Fault):
            found.faults.append((case.raw.name, outcome))


def is_right(case: Case, outcome: Outcome) -> bool:
    if isinstance(outcome, ExtractedText):
        return None in case.expected and case.phrase in " ".join(outcome.text.split())
    return outcome.kind in case.expected


def test_every_document_ends_as_its_kind_should(survey: Survey) -> None:
    assert survey.wrong == []


def test_every_good_document_among_them_keeps_its_text(survey: Survey) -> None:
    assert survey.good >= survey.documents / GOOD_EVERY


def test_every_fault_names_its_document_and_says_what_happened(survey: Survey) -> None:
    silent = [
        (name, fault.message)
        for name, fault in survey.faults
        if not fault.message.startswith(f"{name}: ") or len(fault.message) < len(name) + 20
    ]
    assert silent == []


def test_the_corpus_is_done_in_time(survey: Survey) -> None:
    assert survey.seconds < DEADLINE_SECONDS


def test_children_stay_within_their_memory_and_the_parent_does_not_grow(survey: Survey) -> None:
    assert survey.largest_child_bytes < CHILD_BYTES
    assert survey.grown_bytes < GROWTH_BYTES


def test_damage_is_plenty_and_the_same_every_time() -> None:
    first, second = (list(damaged(make_seeds())) for _ in range(2))
    assert first == second
    assert len({case.raw.content for case in first}) >= 300
