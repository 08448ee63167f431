"""Looks at what users' embedders make before it is stored, where it could never be found."""

from collections.abc import Sequence
from typing import Any, Protocol

from penstock.errors import ConfigurationError

_BYTES = 'np.asarray(vector, dtype="<f4").tobytes()'
# Models that count in halves are not more exact.
_MOST_OFF = 0.01


class OwnEmbedder(Protocol):
    """What a user has to write."""

    identity: str

    def embed(self, texts: Sequence[str]) -> list[bytes]: ...


class CheckedEmbedder:
    """A user's embedder, held to what is asked of it.

    What it does wrong, it does with every text: that pauses the stage, and blames no document.
    """

    def __init__(self, own: OwnEmbedder, window_chars: int, dimensions: int) -> None:
        self.identity = own.identity
        self.window_chars = window_chars
        self._own = own
        self._dimensions = dimensions

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        if not texts:
            return []
        vectors = self._own.embed(texts)
        complaint = self._look_at(vectors, len(texts))
        if complaint is not None:
            raise ConfigurationError(f"the embedder {self.identity} {complaint}")
        return [*vectors]

    def _look_at(self, vectors: Any, texts: int) -> str | None:
        """What is wrong with these and how to mend it."""
        if not hasattr(vectors, "__len__") or len(vectors) != texts:
            found = len(vectors) if hasattr(vectors, "__len__") else type(vectors).__name__
            return f"was given {texts} texts and returned {found}: return a list, one vector a text"
        for vector in vectors:
            if not isinstance(vector, bytes):
                return f"makes vectors of type {type(vector).__name__}: return {_BYTES}"
            if len(vector) != 4 * self._dimensions:
                return (
                    f"makes vectors of {len(vector) / 4:g} dimensions, and its identity says "
                    f"{self._dimensions}: correct the identity, or return {_BYTES}"
                )
        return self._look_at_lengths(b"".join(vectors))

    def _look_at_lengths(self, joined: bytes) -> str | None:
        import numpy as np

        lengths = np.linalg.norm(np.frombuffer(joined, "<f4").reshape(-1, self._dimensions), axis=1)
        if not np.isfinite(lengths).all():
            return "makes vectors with values that are no numbers (NaN or infinite)"
        # A text without a known word has no direction: its vector may be all zeros.
        off = (np.abs(lengths - 1) > _MOST_OFF) & (lengths > 0)
        if off.any():
            return f"makes vectors of length {lengths[off][0]:.3g}, not 1: divide by the length"
        return None
