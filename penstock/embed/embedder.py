"""What every embedding backend offers, and the choice between them."""

from collections.abc import Sequence
from typing import Protocol

from penstock.errors import ConfigurationError


class Embedder(Protocol):
    """Turns texts into vectors of one identity."""

    identity: str
    window_chars: int
    """Longer texts are cut here: the model would not read the rest."""

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One unit-length vector a text, as little-endian float32 bytes, in order."""
        ...


def build_embedder(backend: str, model: str | None) -> Embedder:
    """The backend a setting names."""
    if backend == "wordllama":
        from penstock.embed.wordllama import WordLlamaEmbedder

        return WordLlamaEmbedder(model)
    if backend == "hash":
        from penstock.embed.hashing import HashEmbedder

        return HashEmbedder()
    raise ConfigurationError(f"EMBEDDING_BACKEND={backend} is not known: use wordllama or hash")


def embedder_named(identity: str) -> Embedder:
    """The embedder whose vectors have this identity; ConfigurationError if there is none here."""
    backend, _, rest = identity.partition("/")
    found = build_embedder(backend, rest.rpartition("@")[0])
    if found.identity != identity:
        raise ConfigurationError(f"{backend} makes vectors of {found.identity}, not of {identity}")
    return found
