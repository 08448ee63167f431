"""Extractors that users register; they are tried before the built-in ones."""

import hashlib
import inspect
import pickle
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from penstock.documents import ExtractedText, RawDocument
from penstock.errors import ConfigurationError, UsageError
from penstock.plugins import entry_points, is_file_name, load_module, module_names

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
        """Whether this extractor is for a document of the detected media type."""
        if self.company is not None and self.company != raw.source:
            return False
        if not self.media_types and not self.suffixes:
            return True
        declared = (raw.media_type or "").partition(";")[0].strip().lower()
        if {media_type, declared} & self.media_types:
            return True
        path = urlsplit(raw.name).path if "://" in raw.name else raw.name
        return PurePosixPath(path).suffix.lower() in self.suffixes


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

    The function returns the text, an `ExtractedText` with title and metadata, or None to leave the
    document to the next extractor. It is called for documents of these `media_types` or file
    `suffixes` from the source named `company`; without any of these, for all documents. `install`
    is the command to show when a library that the function imports is missing.

    Example:
        @extractor(suffixes=[".eml"])
        def extract_mail(raw: RawDocument) -> str:
            return message_from_bytes(raw.content).get_payload()
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
    """Register an extractor; one of the same name is replaced."""
    _registered[custom.name] = custom


def remove_extractor(name: str) -> None:
    """Remove an extractor; it is no error when it is not registered."""
    _registered.pop(name, None)


def registered_extractors() -> tuple[CustomExtractor, ...]:
    """Company extractors first, then the others, each in the order of their registration."""
    return tuple(sorted(_registered.values(), key=lambda custom: custom.company is None))


ENTRY_POINTS = "penstock.extractors"
SETTING = "PENSTOCK_EXTRACTORS"


@dataclass(frozen=True, slots=True)
class Extensions:
    """How a child process gets the extractors of this program."""

    modules: tuple[str, ...] = ()
    """Names of modules, or paths of Python files, that register extractors when imported."""
    pickled: bytes = b""
    """Extractors that the program registered itself, by value where they cannot be imported."""
    fingerprint: str = ""
    """Changes when their code changes; empty without extractors."""


def collect_extensions(named: Sequence[str] = ()) -> Extensions:
    """Extractors from the settings, from entry points, and registered by this program."""
    modules = module_names(entry_points(ENTRY_POINTS), named)
    own = registered_extractors()
    if not modules and not own:
        return Extensions()
    pickled = _pickle(own)
    code = hashlib.sha256("\n".join(modules).encode())
    for piece in (*map(_code_of_module, modules), *map(_code_of_function, own), pickled):
        code.update(piece)
    return Extensions(modules, pickled, code.hexdigest())


@cache
def load_extensions(extensions: Extensions) -> None:
    """Register them all in this process, once."""
    for module in extensions.modules:
        load_module(module, holds="extractors", setting=SETTING)
    try:
        own = pickle.loads(extensions.pickled) if extensions.pickled else ()
    except Exception as error:
        raise ConfigurationError(
            "the program's own extractors cannot be loaded where they run "
            f"({type(error).__name__}: {error}): define them in a module that can be imported"
        ) from error
    for custom in own:
        add_extractor(custom)


def _pickle(own: Sequence[CustomExtractor]) -> bytes:
    if not own:
        return b""
    import cloudpickle  # type: ignore[import-untyped]

    try:
        pickled: bytes = cloudpickle.dumps(own)
    except (TypeError, pickle.PicklingError) as error:
        names = ", ".join(custom.name for custom in own)
        raise UsageError(
            f"the extractors ({names}) cannot be sent to the processes that run them ({error}): "
            "open files, locks and connections inside the function"
        ) from error
    return pickled


def _code_of_module(module: str) -> bytes:
    with suppress(ImportError, ValueError, OSError):
        spec = None if is_file_name(module) else find_spec(module)
        origin = module if spec is None else spec.origin
        return Path(origin or "").read_bytes()
    return b""


def _code_of_function(custom: CustomExtractor) -> bytes:
    # A function that is pickled by name has its code only here; without a source it was pickled
    # by value.
    with suppress(OSError, TypeError):
        return inspect.getsource(custom.extract).encode()
    return b""
