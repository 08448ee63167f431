"""Embedders that users write are found by name, checked, and held to what they promise."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.embed.embedder import (
    WINDOW_CHARS,
    CheckedEmbedder,
    HashEmbedder,
    build_embedder,
    embedder_named,
)
from penstock.errors import ConfigurationError
from penstock.settings import load_settings

SOURCE = """
import struct

class Small:
    identity = "ours/small@2"

    def __init__(self, model="plain"):
        self.model = model

    def embed(self, texts):
        return [struct.pack("<2f", 1.0, 0.0) for _ in texts]

class Wide(Small):
    identity = "ours/wide@3"
    window_chars = 10

READY = Small("made in the module")

def make_small(model="made"):
    return Small(model)
"""

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file into the working folder, and gives its name as a setting has it."""
    monkeypatch.chdir(tmp_path)

    def write(source: str = SOURCE, name: str = "own") -> str:
        (tmp_path / f"{name}.py").write_text(source)
        return f"./{name}.py"

    return write


def test_a_class_in_a_file_is_an_embedder(write: Write) -> None:
    found = build_embedder(f"{write()}:Small", None)

    assert (found.identity, found.window_chars) == ("ours/small@2", WINDOW_CHARS)
    assert [len(vector) for vector in found.embed(["a", "b"])] == [8, 8]
    assert found.embed([]) == []
    assert build_embedder("./own.py:Wide", None).window_chars == 10


def test_a_module_that_can_be_imported_has_one_too(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(name="penstock_own_module")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert build_embedder("penstock_own_module:Small", None).identity == "ours/small@2"


@pytest.mark.parametrize(
    ("name", "model", "told"),
    [
        ("Small", None, "plain"),
        ("Small", "large", "large"),
        ("make_small", None, "made"),
        ("make_small", "large", "large"),
        ("READY", "ignored", "made in the module"),
    ],
)
def test_the_model_is_handed_to_whatever_makes_it(
    write: Write, name: str, model: str | None, told: str
) -> None:
    found: Any = build_embedder(f"{write()}:{name}", model)
    assert found._own.model == told


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('identity = "ours/small@2"', "pass", "needs an `identity` that ends in the number"),
        ("ours/small@2", "ours/small", "needs an `identity` .* not 'ours/small'"),
        ("ours/small@2", "small@2", "needs an `identity`"),
        ("ours/small@2", "ours/small@0", "needs an `identity`"),
        ("ours/small@2", "hash/words@64", "as if it were built in"),
        ("ours/small@2", "ours/small@3072", "at most 2000: have the model shorten"),
        ("def embed(", "def embeds(", "has no method `embed"),
        ("class Small:", "class Small:\n    window_chars = 0", "window_chars = 0"),
        ("self.model = model", "raise OSError('no weights')", "OSError: no weights"),
        ("model=", "model, other=", r"TypeError: .*it is called without arguments"),
        ("class Small:", "class Tiny:\n    pass\nclass Big:", "no Small, there is Tiny, Big"),
        ("import struct", "import stract", "cannot be imported"),
        ("import struct", "1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_faulty_one_is_refused_with_what_to_change(
    write: Write, old: str, new: str, complaint: str
) -> None:
    text = SOURCE.partition("class Wide")[0]
    assert old in text

    with pytest.raises(ConfigurationError, match=complaint):
        build_embedder(f"{write(text.replace(old, new))}:Small", None)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.py.*correct EMBEDDING_BACKEND"):
        build_embedder("./nowhere.py:Small", None)


@pytest.mark.parametrize(
    ("vectors", "complaint"),
    [
        ([b"\0" * 8], "was given 2 texts and returned 1"),
        (None, "returned NoneType"),
        ([[1.0, 0.0]] * 2, r"of type list: return np\.asarray"),
        (np.eye(2, dtype="<f4"), r"of type ndarray: return np\.asarray"),
        ([b"\0" * 12] * 2, "of 3 dimensions, and its identity says 2"),
        ([np.ones(2).tobytes()] * 2, "of 4 dimensions, and its identity says 2"),
        ([np.array([3, 4], "<f4").tobytes()] * 2, "of length 5, not 1"),
        ([np.array([np.nan, 0], "<f4").tobytes()] * 2, "no numbers"),
    ],
)
def test_vectors_that_are_not_as_promised_are_refused(vectors: Any, complaint: str) -> None:
    class Own:
        identity = "ours/small@2"

        def embed(self, texts: object) -> Any:
            del texts
            return vectors

    with pytest.raises(ConfigurationError, match=rf"the embedder ours/small@2 .*{complaint}"):
        CheckedEmbedder(Own()).embed(["one", "two"])


def test_zeros_and_the_rounding_of_small_numbers_are_accepted() -> None:
    class Own:
        identity = "ours/small@2"

        def embed(self, texts: object) -> list[bytes]:
            del texts
            return [np.array(v, "<f4").tobytes() for v in ((0, 0), (0.6, 0.8004))]

    assert len(CheckedEmbedder(Own()).embed(["one", "two"])) == 2


def test_the_first_name_makes_vectors_and_the_others_are_found_by_identity(write: Write) -> None:
    backends = f"hash,{write()}:Small,./own.py:Wide"

    assert build_embedder(backends, None).identity == HashEmbedder.identity
    for identity in ("ours/small@2", "ours/wide@3", HashEmbedder.identity):
        assert embedder_named(identity, backends).identity == identity
    with pytest.raises(ConfigurationError, match=r"EMBEDDING_BACKEND=new.py:New,old.py:Old"):
        embedder_named("ours/other@2", backends)


@pytest.mark.parametrize(
    "value",
    ["hash", "our.module:Name", "./a b.py:Name", "/x/y.py:_Name", "hash, a.py:B", "a.py:B,hash"],
)
def test_names_that_can_be_embedders_are_settings(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("EMBEDDING_BACKEND", value)
    assert load_settings().embedding.backend == value.replace(", ", ",")


@pytest.mark.parametrize("value", ["magic", "embedder.py", "a.py:", ":Name", "a.py:1", "hash,"])
def test_other_names_stop_the_start(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("EMBEDDING_BACKEND", value)
    with pytest.raises(ConfigurationError, match=r"EMBEDDING_BACKEND=.*file\.py:Name"):
        load_settings()
