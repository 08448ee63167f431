"""Loads modules that users write, by name or as a file."""

import hashlib
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module, metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from penstock.errors import ConfigurationError


@cache
def entry_points(group: str) -> tuple[metadata.EntryPoint, ...]:
    """Those of installed packages, read once in a process: the files of all packages are read."""
    return tuple(metadata.entry_points(group=group))


def module_names(installed: Iterable[metadata.EntryPoint], named: Sequence[str]) -> tuple[str, ...]:
    """The modules of installed packages, then those named in a setting, files by full path."""
    return (*sorted({entry.module for entry in installed}), *map(_absolute, named))


def load_module(module: str, *, holds: str, setting: str) -> ModuleType:
    """Import a module or run a `.py` file; errors say what it `holds` and which `setting` names it.

    Raises ConfigurationError when it cannot be imported, or raises an error itself.
    """
    try:
        return _load_file(Path(module)) if is_file_name(module) else import_module(module)
    except ImportError as error:
        missing = (error.name or "").split(".")[0]
        advice = f"`pip install {missing}`, or " if missing and missing != module else ""
        raise ConfigurationError(
            f"the {holds} in {module} cannot be imported ({error}): {advice}"
            f"correct {setting} or uninstall the package that names them"
        ) from error
    except Exception as error:
        raise ConfigurationError(
            f"the {holds} in {module} cannot be loaded ({type(error).__name__}: {error}): "
            f"fix that module, or remove it from {setting}"
        ) from error


def is_file_name(module: str) -> bool:
    """Whether this names a file rather than a module that can be imported."""
    return module.endswith(".py")


def _absolute(module: str) -> str:
    # A child process may have another working folder.
    return str(Path(module).absolute()) if is_file_name(module) else module


def _load_file(path: Path) -> ModuleType:
    # Two files of one name in two folders are two modules.
    digest = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    spec = spec_from_file_location(f"penstock_plugin_{path.stem}_{digest}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"there is no Python file {path}")
    module = module_from_spec(spec)
    # Classes with annotations in quotes look up their module there.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(spec.name, None)
        raise
    return module
