"""What runs inside a child process: a chunk of documents in, their texts or faults out."""

import gc
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import cast

from penstock.documents import ExtractedText, Fault, RawDocument
from penstock.errors import DocumentFault, ErrorClass

Extractor = Callable[[RawDocument], ExtractedText]


def prepare_child(memory_bytes: int) -> None:
    """Make this process quiet, bounded, warm, and unable to outlive its parent."""
    _die_with_parent()
    _silence()
    # A stuck C library never gets to a Python signal handler; the default action needs none.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    import_module("penstock.text.warmup")
    gc.freeze()
    _limit_memory(memory_bytes)


def extract_chunk(
    documents: list[RawDocument], extractor: str, text_chars: int
) -> list[ExtractedText | Fault]:
    """One outcome per document, in order; no exception of a document leaves this function."""
    extract = _load_extractor(extractor)
    return [_extract_one(document, extract, text_chars) for document in documents]


def _extract_one(
    document: RawDocument, extract: Extractor, text_chars: int
) -> ExtractedText | Fault:
    try:
        return _cut(extract(document), text_chars)
    except DocumentFault as error:
        return Fault.of(error)
    except MemoryError:
        return Fault(
            ErrorClass.TOO_LARGE,
            f"{document.name}: extracting its text needs more memory than a child process may use",
        )
    except Exception as error:
        return Fault(ErrorClass.UNKNOWN, f"{document.name}: {type(error).__name__}: {error}")


def _cut(extracted: ExtractedText, text_chars: int) -> ExtractedText:
    if len(extracted.text) <= text_chars:
        return extracted
    metadata = {**extracted.metadata, "truncated": True}
    return replace(extracted, text=extracted.text[:text_chars], metadata=metadata)


@cache
def _load_extractor(path: str) -> Extractor:
    module, _, name = path.partition(":")
    return cast(Extractor, getattr(import_module(module), name))


def _die_with_parent() -> None:
    """Ask the kernel for a fatal signal when the parent's end of our pipe closes.

    The parent of a fork server's child is the fork server, so a parent-death signal would come
    from the wrong process, and a watching thread would not run while a C library holds the GIL.
    """
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is None or sys.platform == "win32":
        return
    import fcntl
    import select

    pipe = parent.sentinel
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([pipe], [], [], 0)[0]:
        os._exit(1)


def _silence() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _limit_memory(memory_bytes: int) -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, hard))
