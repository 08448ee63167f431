"""Extractors that users add; they are tried before the built-in ones."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from penstock.documents import ExtractedText, RawDocument
from penstock.errors import UsageError

Extract = Callable[[RawDocument], ExtractedText | str | None]


@dataclass(frozen=True, slots=True)
class CustomExtractor:
    """A user's function and the documents it is for."""

    name: str
    extract: Extract
    media_types: frozenset[str]
    suffixes: frozenset[str]
    company: str | None
    install: str | None

    def wants(self, raw: RawDocument, media_type: str) -> bool:
        """Whether to ask this extractor about a document of the detected media type."""
        if self.company is not None and self.company != raw.source:
            return False
        if not self.media_types and not self.suffixes:
            return True
        declared = (raw.media_type or "").partition(";")[0].strip().lower()
        return bool({media_type, declared} & self.media_types) or suffix_of(raw) in self.suffixes


_registered: dict[str, CustomExtractor] = {}


def extractor(
    *,
    name: str | None = None,
    media_types: Iterable[str] = (),
    suffixes: Iterable[str] = (),
    company: str | None = None,
    install: str | None = None,
) -> Callable[[Extract], Extract]:
    """Register a function that turns a `RawDocument` into text.

    It returns the text, or an `ExtractedText` with title and metadata, or None to leave the
    document to the next one. It is asked about documents of these media types or file suffixes,
    from the source called `company`; what is not named is not asked for. `install` is the command
    that the reader is told when a library the function imports is missing.
    """
    for given in (media_types, suffixes):
        if isinstance(given, str):
            raise UsageError(f"give a list, as in [{given!r}], not the text {given!r}")
    kinds = frozenset(kind.lower() for kind in media_types)
    endings = frozenset("." + suffix.lower().lstrip(".") for suffix in suffixes)

    def register(function: Extract) -> Extract:
        label = name or function.__name__
        add_extractor(CustomExtractor(label, function, kinds, endings, company, install))
        return function

    return register


def add_extractor(custom: CustomExtractor) -> None:
    """Have this one tried too; one of the same name is replaced."""
    _registered[custom.name] = custom


def remove_extractor(name: str) -> None:
    """Forget an extractor; forgetting one that is not there is no error."""
    _registered.pop(name, None)


def registered_extractors() -> tuple[CustomExtractor, ...]:
    """Company extractors first, then the others, each in the order of their registration."""
    return tuple(sorted(_registered.values(), key=lambda custom: custom.company is None))


def suffix_of(raw: RawDocument) -> str:
    path = urlsplit(raw.name).path if "://" in raw.name else raw.name
    return PurePosixPath(path).suffix.lower()
