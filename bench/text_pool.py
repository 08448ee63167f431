"""What child processes cost: time for each document, and memory over thousands of them."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from bench.memory import SAMPLE_SECONDS, PeakMemory
from penstock.documents import RawDocument
from penstock.isolation.pool import ChildPool
from penstock.text.extract import WARMUP, TextPool, extract_text

BATCH = 200
ROUNDS = 3


def measure_overhead(count: int) -> dict[str, float]:
    """Small documents through one child, and the same in this process; the best of each."""
    words = "The penstock leads the water from the reservoir down to the wheel. " * 15
    documents = [RawDocument(f"{i}.txt", f"{i}. {words}".encode()) for i in range(count)]
    with ChildPool(processes=1, warmup=(WARMUP,)) as children:
        pool = TextPool(children)
        pool.extract_many(documents[:BATCH])
        away, here = [], []
        for _ in range(ROUNDS):
            away.append(_time_pool(pool, documents))
            here.append(_time_here(documents))
    each_ms = (min(away) - min(here)) / count * 1000
    return {"seconds": min(away), "peak_mb": 0.0, "here_seconds": min(here), "each_ms": each_ms}


def measure_growth(folder: Path, count: int, warm: int) -> dict[str, float]:
    """Peak memory of this process and its children over `count` PDFs, less that of the first."""
    contents = [path.read_bytes() for path in sorted(folder.glob("*.pdf"))]
    documents = (RawDocument(f"{i}.pdf", contents[i % len(contents)]) for i in range(count))
    with ChildPool(processes=2, warmup=(WARMUP,)) as children:
        pool = TextPool(children)
        started = time.perf_counter()
        first_mb = _peak_mb(pool, list(islice(documents, warm)))
        rest_mb = _peak_mb(pool, list(documents))
        seconds = time.perf_counter() - started
    growth_mb = rest_mb - first_mb
    return {"seconds": seconds, "peak_mb": rest_mb, "documents": count, "growth_mb": growth_mb}


def _peak_mb(pool: TextPool, documents: Sequence[RawDocument]) -> float:
    with PeakMemory() as memory:
        _time_pool(pool, documents)
        while not memory.peak_mb:
            time.sleep(SAMPLE_SECONDS)
    return memory.peak_mb


def _time_pool(pool: TextPool, documents: Sequence[RawDocument]) -> float:
    started = time.perf_counter()
    for batch in _batches(iter(documents)):
        pool.extract_many(batch)
    return time.perf_counter() - started


def _time_here(documents: Sequence[RawDocument]) -> float:
    started = time.perf_counter()
    for document in documents:
        extract_text(document)
    return time.perf_counter() - started


def _batches(documents: Iterator[RawDocument]) -> Iterator[list[RawDocument]]:
    while batch := list(islice(documents, BATCH)):
        yield batch


def main(what: str, *arguments: str) -> None:
    """`overhead COUNT`, or `growth FOLDER COUNT WARM`."""
    if what == "overhead":
        figures = measure_overhead(int(arguments[0]))
    else:
        figures = measure_growth(Path(arguments[0]), int(arguments[1]), int(arguments[2]))
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
