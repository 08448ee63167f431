"""Imported once by the fork server, so that every child starts with its libraries loaded."""

from contextlib import suppress
from importlib import import_module

_LIBRARIES = (
    "penstock.text.child",
    "penstock.text.extractor",
    "charset_normalizer",
    "docx.oxml.parser",
    "lxml.html",
    "pdfplumber",
    "pypdfium2",
    "trafilatura",
)

for _library in _LIBRARIES:
    # What cannot be imported is reported later, by the document that needs it.
    with suppress(Exception):
        import_module(_library)
