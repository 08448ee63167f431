"""The rules in child processes answer as they do anywhere, and a bad text costs only itself."""

from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from penstock.documents import Extraction, ExtractionRequest, ExtractionSkipped, Fault
from penstock.errors import ErrorClass
from penstock.isolation.pool import ChildPool
from penstock.llm import profiles
from penstock.llm.answers import Caps
from penstock.llm.profiles import Profile
from penstock.llm.prompts import Extractor
from penstock.rules import RulesExtractor
from penstock.text.extract import WARMUP

from . import misbehaving
from .scoring import TODAY, load_samples

pytestmark = pytest.mark.full_suite

LONG = "Data engineer with eight years of experience. " * 5


@pytest.fixture(scope="module")
def children() -> Iterator[ChildPool]:
    with ChildPool(processes=2, timeout_seconds=2.0, warmup=(WARMUP,)) as shared:
        yield shared


def titled(*titles: str) -> list[ExtractionRequest]:
    return [ExtractionRequest(LONG, "document", title) for title in titles]


def test_children_answer_under_the_same_name(children: ChildPool) -> None:
    extractor: Extractor = RulesExtractor(children=children)
    assert extractor.identity == RulesExtractor().identity == "rules/2"


@pytest.mark.parametrize("caps", [Caps(), Caps(primary_skills=2, industries=1)])
@pytest.mark.parametrize("max_input_chars", [12_000, 300])
def test_children_answer_as_this_process_does(
    children: ChildPool, caps: Caps, max_input_chars: int
) -> None:
    samples = [s for name in ("resume", "job_posting", "document") for s in load_samples(name)]
    requests = [sample.request for sample in samples]
    expected = RulesExtractor(caps, max_input_chars, TODAY).extract(requests)
    assert (
        RulesExtractor(caps, max_input_chars, TODAY, children=children).extract(requests)
        == expected
    )


def test_outcomes_come_in_the_order_of_the_requests(children: ChildPool) -> None:
    requests = [
        ExtractionRequest("too short", "resume"),
        ExtractionRequest(LONG, "document"),
        ExtractionRequest(LONG, "nonsense"),
        ExtractionRequest(LONG, "resume"),
    ]
    outcomes = RulesExtractor(today=TODAY, children=children).extract(requests)
    assert [type(o) for o in outcomes] == [ExtractionSkipped, Extraction, Fault, Extraction]
    assert outcomes == RulesExtractor(today=TODAY).extract(requests)


def test_what_the_rules_do_not_read_needs_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fields(BaseModel):
        total: float

    own = {**profiles._profiles, "invoice": Profile("invoice", Fields, "Read the invoice.")}
    monkeypatch.setattr(profiles, "_profiles", own)
    closed = ChildPool(processes=1)
    closed.close()
    skipped, unknown, waiting = RulesExtractor(children=closed).extract(
        [
            ExtractionRequest("too short", "resume"),
            ExtractionRequest(LONG, "nonsense"),
            ExtractionRequest(LONG, "invoice"),
        ]
    )
    assert skipped == ExtractionSkipped("insufficient_text")
    assert isinstance(unknown, Fault)
    assert unknown.kind is ErrorClass.UNSUPPORTED
    assert isinstance(waiting, Fault)
    assert waiting.kind is ErrorClass.EXTRACTOR_MISSING


def test_a_text_that_hangs_or_crashes_the_rules_costs_only_itself(children: ChildPool) -> None:
    extractor = RulesExtractor(today=TODAY, function=misbehaving.PATH, children=children)
    titles = ["fine"] * 40
    titles[7], titles[20], titles[33] = "hang", "crash", "raise"
    outcomes = extractor.extract(titled(*titles))
    faults = {i: o for i, o in enumerate(outcomes) if isinstance(o, Fault)}
    assert faults == {
        7: Fault(ErrorClass.TIMEOUT, "hang: extracting its fields was stopped after 2 s"),
        20: Fault(ErrorClass.UNKNOWN, "crash: the process extracting its fields crashed (SIGSEGV)"),
        33: Fault(ErrorClass.UNKNOWN, "raise: ValueError: bad day"),
    }


def test_a_batch_has_one_today(children: ChildPool) -> None:
    extractor = RulesExtractor(function=misbehaving.PATH, children=children)
    outcomes = extractor.extract(titled(*["fine"] * 40))
    days = {outcome.fields["today"] for outcome in outcomes if isinstance(outcome, Extraction)}
    assert len(days) == 1
