"""Penstock: from piles of pages and files to structured, searchable records."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.documents import (
        Embedding,
        ExtractedText,
        Extraction,
        ExtractionSkipped,
        RawDocument,
        RawReference,
    )
    from penstock.llm.profiles import Confidence, Profile
    from penstock.text.custom import extractor
    from penstock.worker import (
        Database,
        ExtractionWorker,
        ResearchDatabase,
        register_signal_handlers,
    )

__version__ = "0.1.0"
__all__ = [
    "Client",
    "Confidence",
    "Database",
    "Embedding",
    "ExtractedText",
    "Extraction",
    "ExtractionSkipped",
    "ExtractionWorker",
    "Profile",
    "RawDocument",
    "RawReference",
    "ResearchDatabase",
    "extractor",
    "register_signal_handlers",
]

_HOMES = {
    "Client": "penstock.client",
    "Database": "penstock.worker",
    "ExtractionWorker": "penstock.worker",
    "ResearchDatabase": "penstock.worker",
    "register_signal_handlers": "penstock.worker",
    "Embedding": "penstock.documents",
    "ExtractedText": "penstock.documents",
    "Extraction": "penstock.documents",
    "ExtractionSkipped": "penstock.documents",
    "RawDocument": "penstock.documents",
    "RawReference": "penstock.documents",
    "Profile": "penstock.llm.profiles",
    "Confidence": "penstock.llm.profiles",
    "extractor": "penstock.text.custom",
}


def __getattr__(name: str) -> Any:
    """What programs use, imported when they do: a command that needs none of it stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
