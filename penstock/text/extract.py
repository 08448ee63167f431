"""Extracts readable text from documents, in child processes that can be killed."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

from penstock.documents import HEADINGS, ExtractedText, Fault, RawDocument, StoredDocument
from penstock.errors import DocumentFault, ErrorClass
from penstock.isolation.child import load_function
from penstock.isolation.pool import ChildPool, ChildTask
from penstock.text import media_types
from penstock.text.charsets import clean_metadata, clean_text, clean_title
from penstock.text.custom import CustomExtractor, Extensions, load_extensions, registered_extractors
from penstock.text.docx import extract_docx
from penstock.text.html import extract_page, page_headings, read_page
from penstock.text.media_types import ArchiveTooLarge, detect_media_type, open_archive
from penstock.text.passages import locate_headings
from penstock.text.pdf.document import extract_pdf
from penstock.text.plain import (
    extract_csv,
    extract_json,
    extract_markdown,
    extract_plain,
    extract_rst,
    extract_xml,
)
from penstock.text.postings.find import extract_posting

T = TypeVar("T")


def extract_web_page(raw: RawDocument) -> ExtractedText:
    """The readable text of a page, with the fields of the job posting if it has one."""
    page = read_page(raw)
    found = extract_posting(page, raw.name) or extract_page(page)
    return replace(found, headings=(*page_headings(page),))


_PACKAGES = {"docx": "python-docx", "charset_normalizer": "charset-normalizer"}
_NAMES = {media_types.OLE: "the old binary Office format (.doc)"}
_ADVICE = {
    media_types.OLE: "save it as .docx or PDF and send that",
    media_types.XLSX: "save each sheet as CSV and send that",
    media_types.PPTX: "save it as PDF and send that",
    media_types.RTF: "save it as DOCX or PDF and send that",
    media_types.BINARY: "it is not text; if it should be, it is damaged",
    "image/*": "it is an image; run OCR on it and send the text",
    "*/*": "send it as PDF, DOCX, HTML or text",
}
_ENCRYPTED_OFFICE = "EncryptedPackage".encode("utf-16-le")


def extract_text(raw: RawDocument) -> ExtractedText:
    """Readable, clean text of one document; DocumentFault when there is none."""
    if not raw.content:
        raise DocumentFault(ErrorClass.EMPTY, f"{raw.name}: the file is empty (0 bytes)")
    media_type = detect_media_type(raw)
    customs = (custom for custom in registered_extractors() if custom.wants(raw, media_type))
    found = (_run_custom(custom, raw, media_type) for custom in customs)
    extracted = next((one for one in found if one is not None), None)
    if extracted is None and media_type not in _EXTRACTORS:
        raise _refusal(raw, media_type)
    extracted = extracted or _run(_EXTRACTORS[media_type], raw, f"reading it as {media_type}")
    text = clean_text(extracted.text)
    if not text:
        raise DocumentFault(ErrorClass.EMPTY, f"{raw.name}: the document has no text")
    metadata = clean_metadata(extracted.metadata)
    if located := locate_headings(text, extracted.headings):
        metadata[HEADINGS] = located
    return replace(
        extracted,
        text=text,
        title=clean_title(extracted.title),
        metadata=metadata,
        headings=(),
    )


def _run_custom(custom: CustomExtractor, raw: RawDocument, media_type: str) -> ExtractedText | None:
    found = _run(custom.extract, raw, f"the extractor {custom.name!r}", custom.install)
    if isinstance(found, str):
        return ExtractedText(found, media_type=media_type)
    if found is None or isinstance(found, ExtractedText):
        return found
    raise DocumentFault(
        ErrorClass.UNKNOWN,
        f"{raw.name}: the extractor {custom.name!r} returned {type(found).__name__}, "
        "not text, an ExtractedText or None",
    )


def _run(
    extract: Callable[[RawDocument], T], raw: RawDocument, doing: str, install: str | None = None
) -> T:
    """What the extractor returns; any error of it as a DocumentFault."""
    try:
        return extract(raw)
    except (DocumentFault, MemoryError):
        raise
    except ImportError as error:
        module = (error.name or "penstock").split(".")[0]
        package = _PACKAGES.get(module, module)
        raise DocumentFault(
            ErrorClass.EXTRACTOR_MISSING,
            f"{raw.name}: the library {package} cannot be imported ({error}): "
            f"{install or f'pip install {package}'}",
        ) from error
    except Exception as error:
        message = f"{raw.name}: {doing} failed ({type(error).__name__}: {error})"
        raise DocumentFault(ErrorClass.UNKNOWN, message) from error


_EXTRACTORS: dict[str, Callable[[RawDocument], ExtractedText]] = {
    media_types.PDF: extract_pdf,
    media_types.DOCX: extract_docx,
    media_types.HTML: extract_web_page,
    media_types.XML: extract_xml,
    media_types.JSON: extract_json,
    media_types.CSV: extract_csv,
    media_types.MARKDOWN: extract_markdown,
    media_types.RST: extract_rst,
    media_types.PLAIN: extract_plain,
}


def _refusal(raw: RawDocument, media_type: str) -> DocumentFault:
    kind = ErrorClass.UNSUPPORTED
    if media_type == media_types.OLE and _ENCRYPTED_OFFICE in raw.content:
        kind = ErrorClass.FORBIDDEN
        reason = "the document is encrypted; remove its password and send it again"
    elif media_type == media_types.ZIP and not _opens(raw.content):
        kind, reason = ErrorClass.CORRUPTION, "the archive is broken or cut short"
    else:
        name = _NAMES.get(media_type, media_type)
        image = media_type.startswith("image/")
        advice = _ADVICE.get("image/*" if image else media_type, _ADVICE["*/*"])
        reason = f"{name} is not supported: {advice}"
    return DocumentFault(kind, f"{raw.name}: {reason}")


def _opens(archive: bytes) -> bool:
    try:
        with suppress(ArchiveTooLarge):  # too many files, but not broken
            open_archive(archive).close()
    except BadZipFile:
        return False
    return True


METADATA_CHARS = 1_000_000

# For quotes, commas and brackets, and for values that are not text.
_VALUE_CHARS = 4


def extract_within(
    document: RawDocument | StoredDocument,
    *,
    extractor: str,
    text_chars: int,
    extensions: Extensions,
) -> ExtractedText:
    """The text from the extractor at this import path, cut at `text_chars`.

    Metadata beyond METADATA_CHARS is left out.
    """
    load_extensions(extensions)
    raw = document if isinstance(document, RawDocument) else _read(document)
    extracted: ExtractedText = load_function(extractor)(raw)
    metadata = _limit_metadata(extracted.metadata)
    if len(extracted.text) <= text_chars and len(metadata) == len(extracted.metadata):
        return extracted
    metadata["truncated"] = True
    return replace(extracted, text=extracted.text[:text_chars], metadata=metadata)


def _limit_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that fit into METADATA_CHARS, in their order."""
    kept, left = {}, METADATA_CHARS
    for key, value in metadata.items():
        size = len(key) + _value_size(value)
        if size <= left:
            left -= size
            kept[key] = value
    return kept


def _value_size(value: Any) -> int:
    """About how many characters the value takes in the database."""
    if isinstance(value, str):
        return len(value) + _VALUE_CHARS
    if isinstance(value, Mapping):
        return _VALUE_CHARS + sum(len(key) + _value_size(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return _VALUE_CHARS + sum(map(_value_size, value))
    return _VALUE_CHARS


def _read(document: StoredDocument) -> RawDocument:
    try:
        content = Path(document.path).read_bytes()
    except OSError as error:
        message = f"{document.name}: could not read raw bytes: {error.strerror or error}"
        raise DocumentFault(ErrorClass.UNAVAILABLE, message) from error
    return RawDocument(document.name, content, document.media_type, document.source)


Outcome = ExtractedText | Fault

EXTRACTOR = "penstock.text.extract:extract_text"
# What children find already imported; by its name, since it is for all that they do.
WARMUP = "penstock.pipeline.warmup"


class TextPool:
    """Extracts text in a pool of children, which other tasks may use too; safe with threads."""

    def __init__(
        self,
        children: ChildPool,
        *,
        text_chars: int = 5_000_000,
        extractor: str = EXTRACTOR,
        extensions: Extensions | None = None,
    ) -> None:
        """`extractor` is an import path, `module:function`, by which children import it."""
        extensions = extensions or Extensions()
        self.fingerprint = extensions.fingerprint
        self._children = children
        self._job: ChildTask[RawDocument | StoredDocument, ExtractedText] = ChildTask(
            function="penstock.text.extract:extract_within",
            doing="extracting its text",
            name_of=lambda document: document.name,
            size_of=lambda one: len(one.content) if isinstance(one, RawDocument) else one.size,
            options={"extractor": extractor, "text_chars": text_chars, "extensions": extensions},
        )

    def extract_many(self, documents: Sequence[RawDocument | StoredDocument]) -> list[Outcome]:
        """The text of each document or its fault, in the order given."""
        return self._children.map(self._job, documents)
