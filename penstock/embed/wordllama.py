"""The embedded default: WordLlama's 256-dimensional token vectors, from the weights in its wheel.

The wheel's files are read directly. Its own loader imports a download client first, which quick
commands would pay for, and pads a batch to its longest text, which costs memory for nothing.
"""

import threading
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.errors import ConfigurationError

MODEL = "l2_supercat"
DIMENSIONS = 256
MAX_TOKENS = 2048


class WordLlamaEmbedder:
    """Means of token vectors: quick, small, and good enough to find things by meaning."""

    identity = f"wordllama/{MODEL}@{DIMENSIONS}"
    window_chars = 4000

    def __init__(self, model: str | None = None) -> None:
        if model not in (None, MODEL):
            raise ConfigurationError(
                f"EMBEDDING_MODEL={model} is not in the wordllama wheel: use {MODEL} or nothing"
            )
        self._loading = threading.Lock()

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        with self._loading:
            table, tokenizer = self._model
        import numpy as np

        encoded = tokenizer.encode_batch_fast([*texts], add_special_tokens=False)
        return [_unit_mean(np, table, tokens.ids) for tokens in encoded]

    @cached_property
    def _model(self) -> tuple[Any, Any]:
        from safetensors import safe_open
        from tokenizers import Tokenizer

        folder = _package_folder()
        weights = folder / "weights" / f"{MODEL}_{DIMENSIONS}.safetensors"
        with safe_open(str(weights), framework="np") as tensors:
            table = tensors.get_tensor("embedding.weight").astype("<f4")
        tokenizer = Tokenizer.from_file(
            str(folder / "tokenizers" / f"{MODEL}_tokenizer_config.json")
        )
        tokenizer.no_padding()
        tokenizer.enable_truncation(MAX_TOKENS)
        return table, tokenizer


def _unit_mean(np: Any, table: Any, ids: Sequence[int]) -> bytes:
    if not ids:
        return bytes(4 * DIMENSIONS)
    # Texts repeat their tokens: fetching each row once beats a plain mean over all of them.
    tokens, counts = np.unique(np.minimum(ids, len(table) - 1), return_counts=True)
    # Not `@`: its library starts threads that wait by spinning, on cores the parsers need.
    mean = np.einsum("i,ij->j", counts.astype("<f4"), table[tokens]) / len(ids)
    norm = float(np.linalg.norm(mean)) or 1.0
    return bytes((mean / np.float32(norm)).astype("<f4").tobytes())


def _package_folder() -> Path:
    package = find_spec("wordllama")
    if package is None or package.origin is None:
        raise ConfigurationError(
            "EMBEDDING_BACKEND=wordllama needs the wordllama package: run `pip install wordllama`"
        )
    return Path(package.origin).parent
