"""The pool gives every document its due, whatever its neighbours do."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from penstock.documents import ExtractedText, Fault, RawDocument
from penstock.errors import ErrorClass, UsageError
from penstock.text.extractor import extract_text
from penstock.text.pool import Outcome, TextPool
from text import misbehaving
from text.factories import make_article, make_docx, make_pdf, make_raw

DEADLINE_SECONDS = 60.0


@pytest.fixture(scope="module")
def pool() -> Iterator[TextPool]:
    with TextPool(processes=2) as shared:
        yield shared


@pytest.fixture(scope="module")
def obedient() -> Iterator[TextPool]:
    with TextPool(processes=2, timeout_seconds=2.0, extractor=misbehaving.PATH) as shared:
        yield shared


def orders(*texts: str) -> list[RawDocument]:
    return [make_raw(text, f"order-{i}") for i, text in enumerate(texts)]


def kind_of(outcome: Outcome) -> ErrorClass | None:
    return outcome.kind if isinstance(outcome, Fault) else None


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {DEADLINE_SECONDS:g} s"
        time.sleep(0.02)


def test_a_mixed_batch_comes_back_in_order(pool: TextPool) -> None:
    batch = [make_article(i) for i in range(30)]
    batch[3] = make_raw(make_pdf(["A page"]), "a.pdf")
    batch[7] = make_raw(b"", "nothing")
    batch[20] = make_raw(make_docx(), "cv.docx")
    outcomes = pool.extract_many(batch)
    assert kind_of(outcomes.pop(7)) == ErrorClass.EMPTY
    del batch[7]
    assert outcomes == [extract_text(document) for document in batch]


def test_an_empty_batch_needs_no_children() -> None:
    with TextPool(processes=1) as unused:
        assert unused.extract_many([]) == []


def test_only_the_crashing_document_pays(obedient: TextPool) -> None:
    batch = orders(*["fine"] * 10, "crash", *["fine"] * 10)
    outcomes = obedient.extract_many(batch)
    assert kind_of(outcomes[10]) == ErrorClass.UNKNOWN
    assert "order-10" in str(outcomes[10])
    assert "SIGSEGV" in str(outcomes[10])
    assert [kind_of(outcome) for i, outcome in enumerate(outcomes) if i != 10] == [None] * 20


def test_only_the_hanging_document_pays(obedient: TextPool) -> None:
    outcomes = obedient.extract_many(orders(*["fine"] * 10, "hang", *["fine"] * 10))
    assert kind_of(outcomes[10]) == ErrorClass.TIMEOUT
    assert "2 s" in str(outcomes[10])
    assert [kind_of(outcome) for i, outcome in enumerate(outcomes) if i != 10] == [None] * 20


def test_several_culprits_are_all_found(obedient: TextPool) -> None:
    batch = orders("crash", "fine", "crash", "hang", "fine", "refuse", "raise")
    assert [kind_of(outcome) for outcome in obedient.extract_many(batch)] == [
        ErrorClass.UNKNOWN,
        None,
        ErrorClass.UNKNOWN,
        ErrorClass.TIMEOUT,
        None,
        ErrorClass.UNSUPPORTED,
        ErrorClass.UNKNOWN,
    ]


def test_eating_all_memory_is_too_large(obedient: TextPool) -> None:
    outcomes = obedient.extract_many(orders("fine", "eat", "fine"))
    assert [kind_of(outcome) for outcome in outcomes] == [None, ErrorClass.TOO_LARGE, None]


def test_a_document_larger_than_the_memory_allows_is_not_even_sent() -> None:
    with TextPool(processes=1, memory_bytes=800) as unused:
        assert kind_of(unused.extract_many([make_raw(b"x" * 101)])[0]) == ErrorClass.TOO_LARGE


def test_long_text_is_cut_and_says_so() -> None:
    with TextPool(processes=1, text_chars=5) as short:
        extracted, whole = short.extract_many([make_raw("12345678"), make_raw("12345")])
    assert isinstance(extracted, ExtractedText)
    assert extracted.text == "12345"
    assert extracted.metadata == {"truncated": True}
    assert isinstance(whole, ExtractedText)
    assert whole.metadata == {}


def test_children_are_kept_between_calls(obedient: TextPool) -> None:
    def children() -> set[str]:
        outcomes = obedient.extract_many(orders(*["fine"] * 40))
        return {o.text.split()[-1] for o in outcomes if isinstance(o, ExtractedText)}

    seen = children() | children() | children()
    assert len(seen) <= 2


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


def test_one_threads_hang_does_not_cost_the_other_its_texts(obedient: TextPool) -> None:
    results: list[list[Outcome]] = []
    hanging = threading.Thread(target=lambda: results.append(obedient.extract_many(orders("hang"))))
    hanging.start()
    outcomes = obedient.extract_many(orders(*["fine"] * 30))
    hanging.join(DEADLINE_SECONDS)
    assert [kind_of(outcome) for outcome in outcomes] == [None] * 30
    assert kind_of(results[0][0]) == ErrorClass.TIMEOUT


def test_an_idle_child_that_dies_is_replaced() -> None:
    with TextPool(processes=1, extractor=misbehaving.PATH) as lonely:
        (first,) = lonely.extract_many(orders("fine"))
        assert isinstance(first, ExtractedText)
        child = psutil.Process(int(first.text.split()[-1]))
        child.kill()
        wait_until(lambda: not child.is_running(), "the end of the child")
        assert kind_of(lonely.extract_many(orders("fine"))[0]) is None


def test_children_make_no_noise(capfd: pytest.CaptureFixture[str]) -> None:
    with TextPool(processes=1, extractor=misbehaving.PATH) as loud:
        assert kind_of(loud.extract_many(orders("shout"))[0]) is None
    assert capfd.readouterr() == ("", "")


def test_a_closed_pool_says_so() -> None:
    closed = TextPool(processes=1)
    closed.close()
    with pytest.raises(UsageError, match="closed"):
        closed.extract_many([make_article()])


def test_closing_ends_the_children() -> None:
    with TextPool(processes=1, extractor=misbehaving.PATH) as short:
        (outcome,) = short.extract_many(orders("fine"))
    assert isinstance(outcome, ExtractedText)
    child = int(outcome.text.split()[-1])
    wait_until(lambda: not psutil.pid_exists(child), "the end of the child")


PROGRAM = f"""
import sys
from penstock.documents import RawDocument
from penstock.text.pool import TextPool

print("main module runs", flush=True)
pool = TextPool(processes=1, extractor={misbehaving.PATH!r})
(outcome,) = pool.extract_many([RawDocument("order", sys.argv[1].encode())])
print(outcome.text, flush=True)
"""


def start_program(folder: Path, order: str) -> subprocess.Popen[str]:
    script = folder / "program.py"
    script.write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, str(script), order],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_a_program_without_a_main_guard_runs_once_and_ends_without_closing(tmp_path: Path) -> None:
    with start_program(tmp_path, "main") as program:
        output, _ = program.communicate(timeout=DEADLINE_SECONDS)
    assert output.splitlines() == ["main module runs", "no main module"]
    assert program.returncode == 0


def test_a_hanging_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with start_program(tmp_path, f"hang {pid_file}") as program:
        try:
            wait_until(lambda: pid_file.exists() and bool(pid_file.read_text()), "the hang")
            child = psutil.Process(int(pid_file.read_text()))
        finally:
            program.kill()
    wait_until(lambda: not child.is_running(), "the end of the child")
