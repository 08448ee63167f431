"""How users' extractors get from the program into the children that run them."""

import hashlib
import inspect
import pickle
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import ConfigurationError, UsageError
from penstock.plugins import is_file_name, load_module, module_names
from penstock.text.registry import CustomExtractor, add_extractor, registered_extractors

ENTRY_POINTS = "penstock.extractors"
SETTING = "PENSTOCK_EXTRACTORS"


@dataclass(frozen=True, slots=True)
class Extensions:
    """Where a child finds every extractor that this program knows."""

    modules: tuple[str, ...] = ()
    """Names of modules, or paths of Python files, that register extractors when imported."""
    pickled: bytes = b""
    """Those that the program registered itself, by value where they cannot be imported."""
    fingerprint: str = ""
    """Changes when their code changes; empty without any."""


def collect_extensions(named: Sequence[str] = ()) -> Extensions:
    """What is named in the settings, installed as an entry point, or registered by this program."""
    modules = module_names(entry_points(group=ENTRY_POINTS), named)
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
    for custom in _unpickle(extensions.pickled):
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


def _unpickle(pickled: bytes) -> tuple[CustomExtractor, ...]:
    try:
        own: tuple[CustomExtractor, ...] = pickle.loads(pickled) if pickled else ()
    except Exception as error:
        raise ConfigurationError(
            "the program's own extractors cannot be loaded where they run "
            f"({type(error).__name__}: {error}): define them in a module that can be imported"
        ) from error
    return own


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
