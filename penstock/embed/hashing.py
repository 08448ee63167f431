"""Vectors from hashed words: no model, no meaning, but equal words lie close. For tests."""

import hashlib
from collections.abc import Sequence


class HashEmbedder:
    """Counts words into buckets chosen by their hash."""

    dimensions = 64
    identity = f"hash/words@{dimensions}"
    window_chars = 100_000

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        return [self._embed_one(text) for text in texts]

    def _embed_one(self, text: str) -> bytes:
        import numpy as np

        vector = np.zeros(self.dimensions, dtype="<f4")
        for word in text.lower().split():
            digest = hashlib.blake2b(word.encode(), digest_size=4).digest()
            vector[int.from_bytes(digest, "big") % self.dimensions] += 1
        norm = float(np.linalg.norm(vector)) or 1.0
        return (vector / np.float32(norm)).astype("<f4").tobytes()
