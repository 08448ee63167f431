"""The embedder interface, the choice of a backend, and the embedders: WordLlama, hashed vectors for
tests, and those that users write.

A setting names one backend or several, separated by commas: the first makes the vectors, the
others are used only while search still uses vectors that they made.
"""

import hashlib
import re
import threading
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from penstock.errors import ConfigurationError
from penstock.plugins import load_module, module_names

BUILT_IN = ("wordllama", "hash")
SETTING = "EMBEDDING_BACKEND"
MODEL = "l2_supercat"
DIMENSIONS = 256
MAX_TOKENS = 2048
# pgvector indexes no more of them.
MAX_DIMENSIONS = 2000
# Some two thousand words; an embedder may set its own.
WINDOW_CHARS = 8000
_IDENTITY = re.compile(r"(?P<maker>[^/\s@]+)/\S+@(?P<dimensions>[1-9][0-9]*)")
_BYTES = 'np.asarray(vector, dtype="<f4").tobytes()'
# Models that compute with 16-bit numbers are not more exact.
_LENGTH_TOLERANCE = 0.01
_load_module = cache(load_module)


class Embedder(Protocol):
    """Turns texts into vectors of one identity.

    A class of your own with these members is named by `EMBEDDING_BACKEND=file.py:Name`. It is made
    without arguments, or with `EMBEDDING_MODEL` if that is set.

    Example:
        class Letters:
            identity = "ours/letters@26"

            def embed(self, texts):
                counts = [[text.count(letter) for letter in ascii_lowercase] for text in texts]
                rows = np.array(counts, dtype="<f4")
                lengths = np.linalg.norm(rows, axis=1, keepdims=True)
                return [row.tobytes() for row in rows / np.maximum(lengths, 1)]
    """

    identity: str
    """`maker/model@dimensions`; vectors of two identities are never compared."""
    window_chars: int
    """The length at which texts are cut: the model reads no more. Optional: 8,000."""

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Embed texts.

        Args:
            texts: None of them empty; several at a time.

        Returns:
            One unit-length vector a text, as little-endian float32 bytes, in order.

        Raises:
            ConfigurationError: The model cannot be loaded; the stage pauses, no document fails.
            DocumentFault: A text cannot be embedded; it costs this document an attempt.
        """
        ...


def build_embedder(backends: str, model: str | None) -> Embedder:
    """The first backend a setting names."""
    return _build(_split(backends)[0], model)


def embedder_named(identity: str, backends: str = "") -> Embedder:
    """The embedder whose vectors have this identity; ConfigurationError if there is none here."""
    maker, _, rest = identity.partition("/")
    if maker in BUILT_IN:
        found = _build(maker, rest.rpartition("@")[0])
        if found.identity == identity:
            return found
        raise ConfigurationError(
            f"the vectors of {identity} cannot be made any more: only {found.identity} is available"
        )
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
        return WordLlamaEmbedder(model)
    if backend == "hash":
        return HashEmbedder()
    if ":" in backend:
        return build_own_embedder(backend, model)
    raise ConfigurationError(
        f"EMBEDDING_BACKEND={backend} is not known: use wordllama, hash, or an embedder of your "
        "own, as file.py:Name or module:Name"
    )


class WordLlamaEmbedder:
    """Means of 256-dimensional token vectors: quick, small, and good enough to find by meaning.

    The files of the wheel are read directly. Its own loader imports a download client first, which
    quick commands would pay for, and pads a batch to its longest text, which costs memory for
    nothing.
    """

    identity = f"wordllama/{MODEL}@{DIMENSIONS}"
    window_chars = 4000

    def __init__(self, model: str | None = None) -> None:
        if model not in (None, MODEL):
            raise ConfigurationError(
                f"EMBEDDING_MODEL={model} is not in the wordllama wheel: use {MODEL} or nothing"
            )

    def load(self) -> tuple[Any, Any]:
        """Load the model, or wait until another thread has."""
        with _loading:
            return _load_model()

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        table, tokenizer = self.load()
        import numpy as np

        encoded = tokenizer.encode_batch_fast([*texts], add_special_tokens=False)
        return [_unit_mean(np, table, tokens.ids) for tokens in encoded]


_loading = threading.Lock()


@cache
def _load_model() -> tuple[Any, Any]:
    """The table of vectors and the tokenizer, once for all embedders of the process."""
    from safetensors import safe_open
    from tokenizers import Tokenizer

    package = find_spec("wordllama")
    if package is None or package.origin is None:
        raise ConfigurationError(
            f"{SETTING}=wordllama needs the wordllama package: run `pip install wordllama`"
        )
    folder = Path(package.origin).parent
    weights = folder / "weights" / f"{MODEL}_{DIMENSIONS}.safetensors"
    with safe_open(str(weights), framework="np") as tensors:
        table = tensors.get_tensor("embedding.weight").astype("<f4")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / f"{MODEL}_tokenizer_config.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return table, tokenizer


def _unit_mean(np: Any, table: Any, ids: Sequence[int]) -> bytes:
    if not ids:
        return bytes(4 * DIMENSIONS)
    # Texts repeat their tokens: fetching each row once beats a plain mean over all of them.
    tokens, counts = np.unique(np.minimum(ids, len(table) - 1), return_counts=True)
    # Not `@`: its library starts threads that wait by spinning, on cores the parsers need.
    return _unit_bytes(np, np.einsum("i,ij->j", counts.astype("<f4"), table[tokens]) / len(ids))


def _unit_bytes(np: Any, vector: Any) -> bytes:
    norm = float(np.linalg.norm(vector)) or 1.0
    return bytes((vector / np.float32(norm)).astype("<f4").tobytes())


class HashEmbedder:
    """Counts words into buckets chosen by their hash."""

    dimensions = 64
    identity = f"hash/words@{dimensions}"
    window_chars = 100_000

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        return [self._embed_one(text) for text in texts]

    def _embed_one(self, text: str) -> bytes:
        import numpy as np

        buckets = [*map(_bucket_of, text.lower().split())]
        counts = np.bincount(np.array(buckets, dtype=np.intp), minlength=self.dimensions)
        return _unit_bytes(np, counts.astype("<f4"))


@lru_cache(1 << 16)
def _bucket_of(word: str) -> int:
    digest = hashlib.blake2b(word.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % HashEmbedder.dimensions


def build_own_embedder(backend: str, model: str | None) -> "CheckedEmbedder":
    """The embedder that `file.py:Name` or `module:Name` names, or that the class or function of
    that name makes. A faulty one raises ConfigurationError."""
    file, _, name = backend.rpartition(":")
    (module,) = module_names((), (file,))
    own = _make(_find(module, name), f"{name} in {module}", model)
    for error in _find_errors(own):
        raise ConfigurationError(f"{SETTING}={backend}: {name} {error}")
    return CheckedEmbedder(own)


class CheckedEmbedder:
    """A user's embedder, whose vectors are checked.

    An error in one vector is one in all: it pauses the stage and fails no document.
    """

    def __init__(self, own: Any) -> None:
        self.identity: str = own.identity
        self.window_chars: int = getattr(own, "window_chars", WINDOW_CHARS)
        self._own = own
        self._dimensions = int(self.identity.rpartition("@")[2])

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        if not texts:
            return []
        vectors = self._own.embed(texts)
        error = self._find_error(vectors, len(texts))
        if error is not None:
            raise ConfigurationError(f"the embedder {self.identity} {error}")
        return [*vectors]

    def _find_error(self, vectors: Any, texts: int) -> str | None:
        """What is wrong with these vectors and how to fix it."""
        import numpy as np

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
        numbers = np.frombuffer(b"".join(vectors), "<f4").reshape(-1, self._dimensions)
        lengths = np.linalg.norm(numbers, axis=1)
        if not np.isfinite(lengths).all():
            return "makes vectors with values that are no numbers (NaN or infinite)"
        # A text without a known word has no direction: its vector may be all zeros.
        wrong = (np.abs(lengths - 1) > _LENGTH_TOLERANCE) & (lengths > 0)
        if wrong.any():
            return f"makes vectors of length {lengths[wrong][0]:.3g}, not 1: divide by the length"
        return None


def _find(module: str, name: str) -> Any:
    loaded = _load_module(module, holds="embedder", setting=SETTING)
    try:
        return getattr(loaded, name)
    except AttributeError:
        own = [
            key
            for key, value in vars(loaded).items()
            if isinstance(value, type) and value.__module__ == loaded.__name__
        ]
        there = f"there is {', '.join(own)}" if own else "there is no class in it"
        raise ConfigurationError(f"{module} has no {name}, {there}: correct {SETTING}") from None


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


def _find_errors(own: Any) -> Iterator[str]:
    """What is wrong with an embedder and how to fix it."""
    identity = getattr(own, "identity", None)
    found = _IDENTITY.fullmatch(identity) if isinstance(identity, str) else None
    if found is None:
        yield (
            f"needs an `identity` that ends in the number of dimensions, not {identity!r}: "
            'write identity = "ours/model@384"'
        )
    elif found["maker"] in BUILT_IN:
        yield f"has the identity {identity}, as if it were built in: let it begin otherwise"
    elif int(found["dimensions"]) > MAX_DIMENSIONS:
        yield (
            f"makes {found['dimensions']} dimensions, and Postgres can search at most "
            f"{MAX_DIMENSIONS}: have the model shorten its vectors"
        )
    if not callable(getattr(own, "embed", None)):
        yield "has no method `embed(texts)` that returns a list of vectors"
    window = getattr(own, "window_chars", WINDOW_CHARS)
    if not isinstance(window, int) or window < 1:
        yield f"has window_chars = {window!r}: write how many characters the model reads"
