"""How users' extractors get from the program into the children that run them."""

import hashlib
import inspect
import pickle
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

from penstock.errors import ConfigurationError, UsageError
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
    installed = sorted({entry.module for entry in entry_points(group=ENTRY_POINTS)})
    modules = (*installed, *map(_absolute, named))
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
        _load_module(module)
    for custom in _unpickle(extensions.pickled):
        add_extractor(custom)


def _absolute(module: str) -> str:
    # A child may have another working folder than the program that names a file.
    return str(Path(module).absolute()) if module.endswith(".py") else module


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


def _load_module(module: str) -> None:
    try:
        if module.endswith(".py"):
            _load_file(Path(module))
        else:
            import_module(module)
    except ImportError as error:
        missing = (error.name or "").split(".")[0]
        advice = f"`pip install {missing}`, or " if missing and missing != module else ""
        raise ConfigurationError(
            f"the extractors in {module} cannot be imported ({error}): {advice}"
            f"correct {SETTING} or uninstall the package that names them"
        ) from error
    except Exception as error:
        raise ConfigurationError(
            f"the extractors in {module} cannot be loaded ({type(error).__name__}: {error}): "
            f"mend that module, or take it out of {SETTING}"
        ) from error


def _load_file(path: Path) -> None:
    spec = spec_from_file_location(f"penstock_extractors_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"there is no Python file {path}")
    spec.loader.exec_module(module_from_spec(spec))


def _code_of_module(module: str) -> bytes:
    with suppress(ImportError, ValueError, OSError):
        spec = None if module.endswith(".py") else find_spec(module)
        origin = module if spec is None else spec.origin
        return Path(origin or "").read_bytes()
    return b""


def _code_of_function(custom: CustomExtractor) -> bytes:
    # A function that is pickled by name has its code only here; without a source it was pickled
    # by value.
    with suppress(OSError, TypeError):
        return inspect.getsource(custom.extract).encode()
    return b""
