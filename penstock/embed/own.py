"""Embedders that users write: found in their modules or files, made, and checked."""

import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from penstock.embed.checked import CheckedEmbedder
from penstock.embed.embedder import BUILT_IN
from penstock.errors import ConfigurationError
from penstock.plugins import load_module, module_names

SETTING = "EMBEDDING_BACKEND"
# pgvector indexes no more of them.
MOST_DIMENSIONS = 2000
# Some two thousand words: a window of its own says it better.
WINDOW_CHARS = 8000
_IDENTITY = re.compile(r"(?P<maker>[^/\s@]+)/\S+@(?P<dimensions>[1-9][0-9]*)")


def build_own_embedder(backend: str, model: str | None) -> CheckedEmbedder:
    """What `file.py:Name` or `module:Name` names: an embedder, or a class or function that makes
    one. A faulty one raises ConfigurationError."""
    file, _, name = backend.rpartition(":")
    (module,) = module_names((), (file,))
    own = _make(_find(_load(module), module, name), f"{name} in {module}", model)
    for complaint in _complaints(own):
        raise ConfigurationError(f"{SETTING}={backend}: {name} {complaint}")
    dimensions = int(own.identity.rpartition("@")[2])
    return CheckedEmbedder(own, getattr(own, "window_chars", WINDOW_CHARS), dimensions)


@cache
def _load(module: str) -> ModuleType:
    return load_module(module, holds="embedder", setting=SETTING)


def _find(loaded: ModuleType, module: str, name: str) -> Any:
    try:
        return getattr(loaded, name)
    except AttributeError:
        own = [key for key, value in vars(loaded).items() if _is_own_class(loaded, value)]
        there = f"there is {', '.join(own)}" if own else "there is no class in it"
        raise ConfigurationError(f"{module} has no {name}, {there}: correct {SETTING}") from None


def _is_own_class(loaded: ModuleType, value: object) -> bool:
    return isinstance(value, type) and value.__module__ == loaded.__name__


def _make(found: Any, called: str, model: str | None) -> Any:
    if not isinstance(found, type) and hasattr(found, "embed"):
        return found
    try:
        return found() if model is None else found(model)
    except Exception as error:
        given = "without arguments" if model is None else f"with EMBEDDING_MODEL, {model!r}"
        raise ConfigurationError(
            f"the embedder {called} cannot be made ({type(error).__name__}: {error}); "
            f"it is called {given}"
        ) from error


def _complaints(own: Any) -> Iterator[str]:
    """What is wrong with an embedder and how to mend it."""
    identity = getattr(own, "identity", None)
    found = _IDENTITY.fullmatch(identity) if isinstance(identity, str) else None
    if found is None:
        yield (
            f"needs an `identity` that ends in the number of dimensions, not {identity!r}: "
            'write identity = "ours/model@384"'
        )
    elif found["maker"] in BUILT_IN:
        yield f"has the identity {identity}, as if it were built in: let it begin otherwise"
    elif int(found["dimensions"]) > MOST_DIMENSIONS:
        yield (
            f"makes {found['dimensions']} dimensions, and Postgres can search at most "
            f"{MOST_DIMENSIONS}: have the model shorten its vectors"
        )
    if not callable(getattr(own, "embed", None)):
        yield "has no method `embed(texts)` that returns a list of vectors"
    window = getattr(own, "window_chars", WINDOW_CHARS)
    if not isinstance(window, int) or window < 1:
        yield f"has window_chars = {window!r}: write how many characters the model reads"
