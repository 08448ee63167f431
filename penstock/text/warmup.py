"""Imports the libraries of text extraction, for child processes: they start with them loaded."""

from contextlib import suppress
from importlib import import_module

_MODULES = (
    "penstock.text.extract",
    "charset_normalizer",
    "docx.oxml.parser",
    "lxml.html",
    "pdfplumber",
    "pypdfium2",
    "trafilatura",
)

for _module in _MODULES:
    # What cannot be imported is reported later, by the document that needs it.
    with suppress(Exception):
        import_module(_module)
