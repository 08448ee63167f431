"""Imports and tries once what child processes do. The process that they are forks of loads this, so
that each of them begins with libraries imported, patterns compiled and word lists read."""

import os
from contextlib import suppress
from importlib import import_module

_MODULES = (
    "penstock.text.extract",
    "penstock.rules.extractor",
    "penstock.runs.compare",
    "charset_normalizer",
    "docx.oxml.parser",
    "lxml.html",
    "pdfplumber",
    "pypdfium2",
    "trafilatura",
)
_PARAGRAPH = "<p>Keep the sluice of Lyon from May 2019 to June 2021, with Python.</p>"
_PAGE = f"""<html><head><title>Sluice keeper</title></head><body><nav>Menu</nav><main><article>
<h1>Sluice keeper</h1>{_PARAGRAPH * 8}</article></main></body></html>"""


def _try_once() -> None:
    from penstock.crawl.simhash import simhash, visible_text
    from penstock.documents import ExtractionRequest, RawDocument
    from penstock.rules import RulesExtractor
    from penstock.text.extract import extract_text

    page = _PAGE.encode()
    simhash(visible_text(page))
    text = extract_text(RawDocument("page.html", page)).text
    profiles = ("document", "resume", "job_posting")
    RulesExtractor().extract([ExtractionRequest(text, profile) for profile in profiles])


# A process with threads must not fork, and numpy starts some for its algebra, which is not used.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
for _module in _MODULES:
    # What cannot be imported is reported later, by the document that needs it.
    with suppress(Exception):
        import_module(_module)
with suppress(Exception):
    _try_once()
