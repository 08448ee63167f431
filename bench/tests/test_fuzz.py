"""The fuzz target finds nothing in a short time, and would tell if it did."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.fuzzing import Batch, Fuzzer, make_batch
from penstock.documents import ExtractedText, Fault, RawDocument
from penstock.errors import ErrorClass
from penstock.text.extract import Outcome
from tests.hostile.seeds import make_seeds

ROOT = Path(__file__).parents[2]
BATCH = Batch(7, [RawDocument("good-7-0.txt", b"x"), RawDocument("bad.pdf", b"y")], "--seed 7")
FINE: list[Outcome] = [ExtractedText("The mill grinds on."), ExtractedText("y")]


class Answering:
    """A pool that does what a test says."""

    def __init__(self, answer: Callable[[], list[Outcome]]) -> None:
        self._answer = answer

    def extract_many(self, documents: Sequence[RawDocument], /) -> list[Outcome]:  # noqa: ARG002 - the interface has it
        return self._answer()


def recipes(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in folder.glob("*.json")]


def run_once(answer: Callable[[], list[Outcome]], folder: Path) -> Fuzzer:
    fuzzer = Fuzzer(Answering(answer), folder, batch_seconds=10.0)
    assert fuzzer.run(BATCH)
    fuzzer.close()
    return fuzzer


def test_three_seconds_of_fuzzing_find_no_failure(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.fuzz", "--seconds", "3", "--failures", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failures" in done.stdout
    assert "slowest batch" in done.stdout


def test_a_number_makes_the_same_batch_again() -> None:
    seeds = make_seeds()
    assert make_batch(3, seeds) == make_batch(3, make_seeds())
    assert make_batch(3, seeds) != make_batch(4, seeds)


def test_good_outcomes_are_only_counted(tmp_path: Path) -> None:
    fuzzer = run_once(lambda: FINE, tmp_path)
    assert fuzzer.tally.failures == 0
    assert fuzzer.tally.classes == {"text": 2}
    assert recipes(tmp_path) == []


def test_an_exception_of_the_pool_is_a_failure_that_can_be_repeated(tmp_path: Path) -> None:
    def fail() -> list[Outcome]:
        raise RuntimeError("bad day")

    fuzzer = run_once(fail, tmp_path)
    (recipe,) = recipes(tmp_path)
    assert fuzzer.tally.failures == 1
    assert recipe["repeat"] == "python -m bench.fuzz --seed 7 --seconds 0"
    assert "bad day" in str(recipe["reason"])


def test_a_lost_document_is_a_failure(tmp_path: Path) -> None:
    assert run_once(lambda: FINE[:1], tmp_path).tally.failures == 1


def test_a_good_document_without_its_text_is_a_failure(tmp_path: Path) -> None:
    assert run_once(lambda: [FINE[1], FINE[1]], tmp_path).tally.failures == 1


def test_a_crash_is_saved_but_no_failure(tmp_path: Path) -> None:
    crash = Fault(ErrorClass.UNKNOWN, "bad.pdf: the process crashed")
    fuzzer = run_once(lambda: [FINE[0], crash], tmp_path)
    assert (fuzzer.tally.failures, fuzzer.tally.suspects) == (0, 1)
    assert [path.read_bytes() for path in tmp_path.glob("*.bin")] == [b"y"]


def test_a_pool_that_hangs_is_a_failure_and_is_given_up(tmp_path: Path) -> None:
    released = threading.Event()

    def hang() -> list[Outcome]:
        released.wait(60)
        return FINE

    fuzzer = Fuzzer(Answering(hang), tmp_path, batch_seconds=0.05)
    try:
        assert not fuzzer.run(BATCH)
    finally:
        released.set()
        fuzzer.close()
    assert fuzzer.tally.failures == 1
