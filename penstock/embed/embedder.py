"""What every embedding backend offers, and the choice between them.

A setting names one backend or several, separated by commas: the first makes the vectors, the
others are asked only as long as search looks among those that they once made.
"""

from collections.abc import Sequence
from typing import Protocol

from penstock.errors import ConfigurationError

BUILT_IN = ("wordllama", "hash")


class Embedder(Protocol):
    """Turns texts into vectors of one identity."""

    identity: str
    window_chars: int
    """Longer texts are cut here: the model would not read the rest."""

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One unit-length vector a text, as little-endian float32 bytes, in order."""
        ...


def build_embedder(backends: str, model: str | None) -> Embedder:
    """The first backend a setting names."""
    return _build(_split(backends)[0], model)


def embedder_named(identity: str, backends: str = "") -> Embedder:
    """The embedder whose vectors have this identity; ConfigurationError if there is none here."""
    maker, _, rest = identity.partition("/")
    if maker in BUILT_IN:
        return _expect(identity, _build(maker, rest.rpartition("@")[0]))
    for backend in _split(backends)[1:]:
        found = _build(backend, None)
        if found.identity == identity:
            return found
    raise ConfigurationError(
        f"no embedder that EMBEDDING_BACKEND={backends} names makes vectors of {identity}: "
        "name it after a comma, as in EMBEDDING_BACKEND=new.py:New,old.py:Old"
    )


def _split(backends: str) -> list[str]:
    return [backend.strip() for backend in backends.split(",")]


def _build(backend: str, model: str | None) -> Embedder:
    if backend == "wordllama":
        from penstock.embed.wordllama import WordLlamaEmbedder

        return WordLlamaEmbedder(model)
    if backend == "hash":
        from penstock.embed.hashing import HashEmbedder

        return HashEmbedder()
    if ":" in backend:
        from penstock.embed.own import build_own_embedder

        return build_own_embedder(backend, model)
    raise ConfigurationError(
        f"EMBEDDING_BACKEND={backend} is not known: use wordllama, hash, or an embedder of your "
        "own, as file.py:Name or module:Name"
    )


def _expect(identity: str, found: Embedder) -> Embedder:
    if found.identity != identity:
        raise ConfigurationError(
            f"the vectors of {identity} cannot be made any more: {found.identity} is what there is"
        )
    return found
