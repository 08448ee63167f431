"""Every document of a batch gets its text or its fault, whatever its neighbours do."""

import threading
from collections.abc import Iterator

import pytest

from penstock.documents import ExtractedText, Fault, RawDocument
from penstock.errors import ConfigurationError, ErrorClass
from penstock.isolation.pool import ChildPool
from penstock.text.extract import WARMUP, Outcome, TextPool, extract_text

from . import misbehaving
from .factories import make_article, make_docx, make_pdf, make_raw

pytestmark = pytest.mark.full_suite

DEADLINE_SECONDS = 60.0


@pytest.fixture(scope="module")
def children() -> Iterator[ChildPool]:
    with ChildPool(processes=2, timeout_seconds=2.0, warmup=(WARMUP,)) as shared:
        yield shared


@pytest.fixture(scope="module")
def pool(children: ChildPool) -> TextPool:
    return TextPool(children)


@pytest.fixture(scope="module")
def obedient(children: ChildPool) -> TextPool:
    return TextPool(children, extractor=misbehaving.PATH)


def orders(*texts: str) -> list[RawDocument]:
    return [make_raw(text, f"order-{i}") for i, text in enumerate(texts)]


def kind_of(outcome: Outcome) -> ErrorClass | None:
    return outcome.kind if isinstance(outcome, Fault) else None


def test_a_mixed_batch_comes_back_in_order(pool: TextPool) -> None:
    batch = [make_article(i) for i in range(30)]
    batch[3] = make_raw(make_pdf(["A page"]), "a.pdf")
    batch[7] = make_raw(b"", "nothing")
    batch[20] = make_raw(make_docx(), "cv.docx")
    outcomes = pool.extract_many(batch)
    assert kind_of(outcomes.pop(7)) == ErrorClass.EMPTY
    del batch[7]
    assert outcomes == [extract_text(document) for document in batch]


def test_an_empty_batch_gives_nothing(pool: TextPool) -> None:
    assert pool.extract_many([]) == []


def test_every_culprit_is_named_with_what_it_did(obedient: TextPool) -> None:
    outcomes = obedient.extract_many(orders("fine", "crash", "hang", "eat", "raise", "refuse"))
    assert [kind_of(outcome) for outcome in outcomes[:1]] == [None]
    assert outcomes[1:] == [
        Fault(ErrorClass.UNKNOWN, "order-1: the process extracting its text crashed (SIGSEGV)"),
        Fault(ErrorClass.TIMEOUT, "order-2: extracting its text was stopped after 2 s"),
        Fault(
            ErrorClass.TOO_LARGE,
            "order-3: extracting its text needs more memory than a child process may use",
        ),
        Fault(ErrorClass.UNKNOWN, "order-4: ValueError: bad day"),
        Fault(ErrorClass.UNSUPPORTED, "not this one"),
    ]


def test_a_document_larger_than_the_memory_allows_is_not_even_sent() -> None:
    with ChildPool(processes=1, memory_bytes=800) as unused:
        (outcome,) = TextPool(unused).extract_many([make_raw(b"x" * 101)])
    assert outcome == Fault(
        ErrorClass.TOO_LARGE,
        "page: 101 bytes, more than the 100 that fit into the memory of a child process",
    )


def test_long_text_is_cut_and_says_so(children: ChildPool) -> None:
    short = TextPool(children, text_chars=5)
    extracted, whole = short.extract_many([make_raw("12345678"), make_raw("12345")])
    assert isinstance(extracted, ExtractedText)
    assert extracted.text == "12345"
    assert extracted.metadata == {"truncated": True}
    assert isinstance(whole, ExtractedText)
    assert whole.metadata == {}


def test_an_extractor_that_is_not_there_is_no_fault_of_the_documents(children: ChildPool) -> None:
    misspelt = TextPool(children, extractor="penstock.text.extract:extract_txet")
    with pytest.raises(ConfigurationError, match="extract_txet"):
        misspelt.extract_many([make_article()])


def test_two_threads_get_their_own_texts_at_once(pool: TextPool) -> None:
    batches = [[make_article(n * 100 + i) for i in range(20)] for n in range(2)]
    results: dict[int, list[Outcome]] = {}

    def work(number: int) -> None:
        results[number] = pool.extract_many(batches[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    for number, batch in enumerate(batches):
        assert results[number] == [extract_text(document) for document in batch]
