"""One way of reading PDFs: its pages per second and its memory."""

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path

from bench.memory import PeakMemory
from penstock.documents import ExtractedText, RawDocument
from penstock.errors import DocumentFault
from penstock.isolation.pool import ChildPool
from penstock.text.extract import WARMUP, TextPool
from penstock.text.pdf.document import extract_pdf

Reader = Callable[[bytes], str]
POOL = "penstock-pool"
_WARM_FILES = 2


def main(contender: str, folder: str, most: str) -> None:
    """Read the first `most` files. Imports and the first two files are not part of the time."""
    paths = islice(sorted(Path(folder).glob("**/*.pdf")), int(most))
    contents = [path.read_bytes() for path in paths]
    if contender == POOL:
        seconds, peak_mb = _time_pool(contents)
    else:
        seconds = _time_reader(READERS[contender](), contents)
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pages = sum(map(_page_count, contents))
    sys.stdout.write(json.dumps({"seconds": seconds, "peak_mb": peak_mb, "documents": pages}))


def _time_reader(read: Reader, contents: Sequence[bytes]) -> float:
    for content in contents[:_WARM_FILES]:
        read(content)
    started = time.perf_counter()
    for content in contents:
        read(content)
    return time.perf_counter() - started


def _time_pool(contents: Sequence[bytes]) -> tuple[float, float]:
    documents = [RawDocument(f"{i}.pdf", content) for i, content in enumerate(contents)]
    with ChildPool(processes=2, warmup=(WARMUP,)) as children, PeakMemory() as memory:
        pool = TextPool(children)
        pool.extract_many(documents[: 2 * _WARM_FILES])
        started = time.perf_counter()
        outcomes = pool.extract_many(documents)
        seconds = time.perf_counter() - started
    if not any(isinstance(outcome, ExtractedText) for outcome in outcomes):
        raise SystemExit(f"none of the PDFs gave any text: {outcomes[:1]}")
    return seconds, memory.peak_mb


def _page_count(content: bytes) -> int:
    from pypdfium2 import PdfDocument  # type: ignore[import-untyped]  # it has no types

    document = PdfDocument(content)
    try:
        return len(document)
    finally:
        document.close()


def _penstock() -> Reader:
    def read(content: bytes) -> str:
        try:
            return extract_pdf(RawDocument("file.pdf", content)).text
        except DocumentFault:
            return ""  # scanned, encrypted or broken, which the others pass over in silence

    return read


def _pypdfium2() -> Reader:
    from pypdfium2 import PdfDocument

    def read(content: bytes) -> str:
        document = PdfDocument(content)
        texts = []
        for page in document:
            textpage = page.get_textpage()
            texts.append(textpage.get_text_range())
            textpage.close()
            page.close()
        document.close()
        return "\n".join(texts)

    return read


def _pdfplumber() -> Reader:
    import pdfplumber

    def read(content: bytes) -> str:
        texts = []
        with pdfplumber.open(BytesIO(content)) as document:
            for page in document.pages:
                texts.append(page.extract_text())
                page.close()
        return "\n".join(texts)

    return read


def _pypdf() -> Reader:
    # A peer, installed for this bench alone: mypy may or may not find it.
    from pypdf import PdfReader  # type: ignore[import-not-found,import-untyped,unused-ignore]

    return lambda content: "\n".join(p.extract_text() for p in PdfReader(BytesIO(content)).pages)


READERS: dict[str, Callable[[], Reader]] = {
    "penstock": _penstock,
    "pypdfium2": _pypdfium2,
    "pdfplumber": _pdfplumber,
    "pypdf": _pypdf,
}
"""By name; each imports its library when it is called."""


if __name__ == "__main__":
    main(*sys.argv[1:])
