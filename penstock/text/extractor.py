"""One document in, its readable text out, by the extractor for what the document really is."""

from collections.abc import Callable
from dataclasses import replace
from zipfile import BadZipFile

from penstock.documents import ExtractedText, RawDocument
from penstock.errors import DocumentFault, ErrorClass
from penstock.text import kinds
from penstock.text.archives import ArchiveTooLarge, open_archive
from penstock.text.characters import clean_metadata, clean_text, clean_title
from penstock.text.kinds import detect_media_type
from penstock.text.markup import extract_xml
from penstock.text.pdf.document import extract_pdf
from penstock.text.plain import extract_markdown, extract_plain, extract_rst
from penstock.text.records import extract_json
from penstock.text.registry import CustomExtractor, registered_extractors
from penstock.text.tables import extract_csv
from penstock.text.webpage import extract_web_page
from penstock.text.word.document import extract_docx

_PACKAGES = {"docx": "python-docx", "charset_normalizer": "charset-normalizer"}
_ADVICE = {
    kinds.XLSX: "save each sheet as CSV and send that",
    kinds.PPTX: "save it as PDF and send that",
    kinds.RTF: "save it as DOCX or PDF and send that",
    kinds.BINARY: "it is not a text; if it should be one, it is damaged",
}
_ENCRYPTED_OFFICE = "EncryptedPackage".encode("utf-16-le")


def extract_text(raw: RawDocument) -> ExtractedText:
    """Readable, clean text of one document; raises DocumentFault when there is none to be had."""
    if not raw.content:
        raise DocumentFault(ErrorClass.EMPTY, f"{raw.name}: the file is empty (0 bytes)")
    extracted = _clean(_extract(raw))
    if not extracted.text:
        raise DocumentFault(ErrorClass.EMPTY, f"{raw.name}: there is no text in it")
    return extracted


def _extract(raw: RawDocument) -> ExtractedText:
    media_type = detect_media_type(raw)
    for custom in registered_extractors():
        if custom.wants(raw, media_type):
            found = _run_custom(custom, raw, media_type)
            if found is not None:
                return found
    return _dispatch(raw, media_type)


def _run_custom(custom: CustomExtractor, raw: RawDocument, media_type: str) -> ExtractedText | None:
    try:
        found = custom.extract(raw)
    except (DocumentFault, MemoryError):
        raise
    except ImportError as error:
        raise _missing_library(raw, error, custom.install) from error
    except Exception as error:
        raise _custom_fault(raw, custom, f"failed ({type(error).__name__}: {error})") from error
    if isinstance(found, str):
        return ExtractedText(found, media_type=media_type)
    if found is None or isinstance(found, ExtractedText):
        return found
    raise _custom_fault(
        raw, custom, f"returned {type(found).__name__}, not text, an ExtractedText or None"
    )


def _custom_fault(raw: RawDocument, custom: CustomExtractor, what: str) -> DocumentFault:
    return DocumentFault(ErrorClass.UNKNOWN, f"{raw.name}: the extractor {custom.name!r} {what}")


def _dispatch(raw: RawDocument, media_type: str) -> ExtractedText:
    extract = _EXTRACTORS.get(media_type)
    if extract is None:
        raise _refusal(raw, media_type)
    try:
        return extract(raw)
    except (DocumentFault, MemoryError):
        raise
    except ImportError as error:
        raise _missing_library(raw, error) from error
    except Exception as error:
        raise DocumentFault(
            ErrorClass.UNKNOWN,
            f"{raw.name}: reading it as {media_type} failed ({type(error).__name__}: {error})",
        ) from error


_EXTRACTORS: dict[str, Callable[[RawDocument], ExtractedText]] = {
    kinds.PDF: extract_pdf,
    kinds.DOCX: extract_docx,
    kinds.HTML: extract_web_page,
    kinds.XML: extract_xml,
    kinds.JSON: extract_json,
    kinds.CSV: extract_csv,
    kinds.MARKDOWN: extract_markdown,
    kinds.RST: extract_rst,
    kinds.PLAIN: extract_plain,
}


def _clean(extracted: ExtractedText) -> ExtractedText:
    return replace(
        extracted,
        text=clean_text(extracted.text),
        title=clean_title(extracted.title),
        metadata=clean_metadata(extracted.metadata),
    )


def _refusal(raw: RawDocument, media_type: str) -> DocumentFault:
    if media_type == kinds.OLE:
        return _ole_refusal(raw)
    if media_type == kinds.ZIP and not _opens(raw.content):
        return DocumentFault(
            ErrorClass.CORRUPTION, f"{raw.name}: the archive is broken or cut short"
        )
    advice = _ADVICE.get(media_type, "send it as PDF, DOCX, HTML or text")
    if media_type.startswith("image/"):
        advice = "it is an image; run OCR on it and send the text"
    return DocumentFault(
        ErrorClass.UNSUPPORTED, f"{raw.name}: {media_type} is not supported: {advice}"
    )


def _ole_refusal(raw: RawDocument) -> DocumentFault:
    if _ENCRYPTED_OFFICE in raw.content:
        return DocumentFault(
            ErrorClass.FORBIDDEN,
            f"{raw.name}: the document is encrypted; remove its password and send it again",
        )
    return DocumentFault(
        ErrorClass.UNSUPPORTED,
        f"{raw.name}: the old binary Office format (.doc) is not supported: "
        "save it as .docx or PDF and send that",
    )


def _opens(archive: bytes) -> bool:
    try:
        open_archive(archive).close()
    except BadZipFile:
        return False
    except ArchiveTooLarge:
        return True  # more files than anybody would look into, but nothing is wrong with it
    return True


def _missing_library(
    raw: RawDocument, error: ImportError, install: str | None = None
) -> DocumentFault:
    module = (error.name or "penstock").split(".")[0]
    package = _PACKAGES.get(module, module)
    command = install or f"pip install {package}"
    return DocumentFault(
        ErrorClass.EXTRACTOR_MISSING,
        f"{raw.name}: the library {package} cannot be imported ({error}): {command}",
    )
