"""One way of finding the article of a page, on one core: its pages per second and its F1.

F1 is the measure of the public article-extraction-benchmark (https://github.com/scrapinghub):
precision and recall of each page over its shingles of four words, counted as often as they occur,
averaged over the pages.
"""

import gzip
import json
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from penstock.documents import RawDocument
from penstock.text.charsets import decode_text
from penstock.text.html import extract_page, read_page

Reader = Callable[[bytes], str]
_WARM_PAGES = 5
SHINGLE_WORDS = 4
_WORD = re.compile(r"\w+")


def main(contender: str, folder: str) -> None:
    """Read all pages once. Imports and the first few pages are not part of the time."""
    truth = json.loads((Path(folder) / "ground-truth.json").read_text(encoding="utf-8"))
    names = sorted(truth)
    pages = [gzip.decompress((Path(folder) / "html" / f"{n}.html.gz").read_bytes()) for n in names]
    read = CONTENDERS[contender]()
    for page in pages[:_WARM_PAGES]:
        read(page)
    started = time.perf_counter()
    found = [read(page) for page in pages]
    seconds = time.perf_counter() - started
    pairs = [(truth[name]["articleBody"], text) for name, text in zip(names, found, strict=True)]
    figures = {
        "seconds": seconds,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "documents": len(pages),
        "f1": score_f1(pairs),
        "f1_odd": score_f1(pairs[::2]),
        "f1_even": score_f1(pairs[1::2]),
    }
    sys.stdout.write(json.dumps(figures))


def _penstock() -> Reader:
    return lambda page: extract_page(read_page(RawDocument("page", page))).text


def _trafilatura() -> Reader:
    from trafilatura import extract

    return lambda page: extract(page) or ""


def _trafilatura_fast() -> Reader:
    from trafilatura import extract

    return lambda page: extract(page, fast=True, include_comments=False) or ""


def _readability() -> Reader:
    # Peers are installed for this bench alone, so mypy may or may not find them; lxml has no types.
    from lxml.html import fromstring  # type: ignore[import-untyped]
    from readability import Document  # type: ignore[import-not-found,import-untyped,unused-ignore]

    def read(page: bytes) -> str:
        summary = Document(decode_text(page, markup=True)).summary(html_partial=True)
        return str(fromstring(summary).text_content())

    return read


def _resiliparse() -> Reader:
    # A peer, as above.
    from resiliparse.extract.html2text import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        extract_plain_text,
    )

    def read(page: bytes) -> str:
        source = decode_text(page, markup=True)
        return str(extract_plain_text(source, main_content=True, alt_texts=False))

    return read


CONTENDERS: dict[str, Callable[[], Reader]] = {
    "penstock": _penstock,
    "trafilatura": _trafilatura,
    "trafilatura-fast": _trafilatura_fast,
    "readability": _readability,
    "resiliparse": _resiliparse,
}
"""By name; each imports its library when it is called."""


def score_f1(pairs: Iterable[tuple[str, str]]) -> float:
    """F1 over (true text, found text) of all pages."""
    scores = [_precision_recall(_shingles(true), _shingles(found)) for true, found in pairs]
    precision = sum(one for one, _ in scores) / len(scores)
    recall = sum(one for _, one in scores) / len(scores)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _shingles(text: str) -> Counter[tuple[str, ...]]:
    words = _WORD.findall(text)
    last = max(len(words) - SHINGLE_WORDS, 0) if words else -1
    return Counter(tuple(words[i : i + SHINGLE_WORDS]) for i in range(last + 1))


def _precision_recall(
    true: Counter[tuple[str, ...]], found: Counter[tuple[str, ...]]
) -> tuple[float, float]:
    if true == found:
        return 1.0, 1.0
    common = (true & found).total()
    return common / max(found.total(), 1), common / max(true.total(), 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
