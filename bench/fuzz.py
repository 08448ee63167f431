"""Random damage to valid documents, through the real pool: `python -m bench.fuzz --seconds 60`.

Every batch is made from a number of its own, counted up from `--seed`, so that one number repeats
a failure. Ends with 1 when the pool raised, a batch hung, a document got no outcome, or a good
one lost its text. Crashes and timeouts of single documents are the pool's daily bread: they are
counted and saved, no more.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from rich.console import Console

from bench.fuzzing import Batch, Fuzzer, Pool, make_batch
from penstock.documents import RawDocument
from penstock.isolation.pool import ChildPool
from penstock.text.extract import WARMUP, TextPool
from tests.hostile.corpus import traps
from tests.hostile.seeds import make_seeds

HUGE_SCALE = 1_000_000
HUGE_BATCH = -1
# A batch that is broken up runs its documents one by one, each with the full time.
GRACE_SECONDS = 60.0
PROGRESS_SECONDS = 5.0
SHOWN = 5
console = Console(highlight=False)


def run(options: argparse.Namespace) -> int:
    """Fuzz for the time given, at least one batch; 1 when something failed."""
    with ChildPool(
        processes=options.processes, timeout_seconds=options.timeout, warmup=(WARMUP,)
    ) as children:
        pool = TextPool(children)
        pool.extract_many([RawDocument("first.txt", b"starts the children")])
        fuzzer = Fuzzer(pool, options.failures, 10 * options.timeout + GRACE_SECONDS)
        alive = _run_batches(fuzzer, _batches(options), options.seconds)
        if alive:
            _print_slowest(pool, fuzzer)
    fuzzer.close()
    _print_end(fuzzer, options.failures)
    return 1 if fuzzer.tally.failures else 0


def _batches(options: argparse.Namespace) -> Iterator[Batch]:
    seeds = make_seeds()
    if options.huge:
        yield Batch(HUGE_BATCH, [case.raw for case in traps(HUGE_SCALE)], "--huge")
    yield from (make_batch(number, seeds) for number in count(options.seed))


def _run_batches(fuzzer: Fuzzer, batches: Iterator[Batch], seconds: float) -> bool:
    started = told = time.monotonic()
    for batch in batches:
        if not fuzzer.run(batch):
            return False
        now = time.monotonic()
        if now - told > PROGRESS_SECONDS:
            told = now
            _print_progress(fuzzer, now - started)
        if now - started >= seconds:
            return True
    return True


def _print_progress(fuzzer: Fuzzer, seconds: float) -> None:
    done = fuzzer.tally.classes.total()
    console.print(f"{seconds:4.0f} s: {done:,} documents, {fuzzer.tally.failures} failures")


def _print_slowest(pool: Pool, fuzzer: Fuzzer) -> None:
    """The documents of the slowest batch, each timed by itself."""
    if fuzzer.tally.slowest is None:
        return
    seconds, batch = fuzzer.tally.slowest
    console.print(f"slowest batch: {batch.number}, {seconds:.2f} s; its slowest documents:")
    timed = sorted(((_time(pool, raw), raw.name) for raw in batch.documents), reverse=True)
    for one, name in timed[:SHOWN]:
        console.print(f"  {one:6.3f} s  {name}")


def _time(pool: Pool, raw: RawDocument) -> float:
    started = time.monotonic()
    pool.extract_many([raw])
    return time.monotonic() - started


def _print_end(fuzzer: Fuzzer, folder: Path) -> None:
    for name, number in fuzzer.tally.classes.most_common():
        console.print(f"{number:8,}  {name}")
    console.print(f"{fuzzer.tally.failures} failures, {fuzzer.tally.suspects} crashes or timeouts")
    if fuzzer.tally.failures or fuzzer.tally.suspects:
        console.print(f"saved in {folder}, with the command that repeats each")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1, help="number of the first batch")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds for one document")
    parser.add_argument("--huge", action="store_true", help="begin with all traps at full size")
    parser.add_argument(
        "--failures", type=Path, default=Path(tempfile.gettempdir()) / "penstock-fuzz"
    )
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
