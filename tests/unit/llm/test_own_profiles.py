"""Profiles that users write are found in their modules, checked, and known once."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from penstock.errors import ConfigurationError
from penstock.llm import profiles
from penstock.llm.profiles import choose_by_class, load_own_profiles, profile_named, profile_names

SOURCE = """
from __future__ import annotations

from collections.abc import Callable
from pydantic import BaseModel
from penstock.llm.profiles import Profile
from penstock.llm.profiles import Confidence

class Line(BaseModel):
    text: str

class Invoice(BaseModel):
    total: float | None = None
    lines: list[Line] = []
    confidence: Confidence

INVOICE = Profile(
    name="invoice",
    schema=Invoice,
    prompt="You read an invoice.",
    required=("total",),
    classes=("Invoice",),
)
ALIAS = INVOICE
"""

Write = Callable[[str, str], str]


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test makes known or installs, no other test meets."""
    monkeypatch.setattr(profiles, "_profiles", dict(profiles._profiles))
    monkeypatch.setattr(profiles, "entry_points", lambda group: [])  # noqa: ARG005
    profiles._load.cache_clear()


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes modules that can be imported as long as the test runs, and gives their paths."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(name: str, source: str = SOURCE) -> str:
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        return str(path)

    yield write
    ours = [
        name
        for name, module in sys.modules.items()
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path))
    ]
    for name in ours:
        del sys.modules[name]


def edited(old: str, new: str) -> str:
    assert old in SOURCE
    return SOURCE.replace(old, new)


def test_nothing_named_is_nothing_loaded() -> None:
    assert load_own_profiles() == ()
    assert profile_names() == ("resume", "job_posting", "document")


def test_a_profile_in_a_file_is_known_by_name_and_class(write: Write) -> None:
    assert load_own_profiles([write("own", SOURCE)]) == ("invoice",)
    assert profile_named("invoice").required == ("total",)
    choice = choose_by_class(["invoice"], None)
    assert choice is not None
    assert choice.profile == "invoice"


def test_a_file_is_found_from_the_working_folder(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(write("own", SOURCE)).parent)
    assert load_own_profiles(["own.py"]) == ("invoice",)


def test_a_module_is_found_by_name(write: Write) -> None:
    write("mill_profiles", SOURCE)
    assert load_own_profiles(["mill_profiles"]) == ("invoice",)


def test_an_installed_package_brings_its_profiles(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("mill_package", SOURCE)
    entry = EntryPoint("mills", "mill_package", "penstock.profiles")
    monkeypatch.setattr(profiles, "entry_points", lambda group: [entry])  # noqa: ARG005
    assert load_own_profiles(["mill_package"]) == ("invoice",)


def test_loading_again_changes_nothing(write: Write) -> None:
    path = write("own", SOURCE)
    load_own_profiles([path])
    first = profile_named("invoice")
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: load_own_profiles([path]), range(8))) == {("invoice",)}
    assert profile_named("invoice") is first


def test_two_files_of_one_name_are_two_modules(write: Write, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "own.py"
    other.write_text(edited('name="invoice"', 'name="receipt"'))
    assert load_own_profiles([write("own", SOURCE), str(other)]) == ("invoice", "receipt")
    assert profile_named("invoice").schema_hash != profile_named("receipt").schema_hash


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1", r"holds no profile: assign one .* or take it out of EXTRACTION_PROFILES"),
        ("def broken(:", r"cannot be loaded \(SyntaxError: .* fix that module"),
        ("import no_such_library", r"`pip install no_such_library`, or correct EXTRACTION_PROF"),
        (edited("    confidence: Confidence\n", ""), r"no field `confidence`.*add `confidence:"),
        (edited('name="invoice"', 'name="in voice"'), r"'in voice' needs another name"),
        (edited('name="invoice"', 'name="resume"'), r"'resume' already exists: give yours another"),
        (edited('("total",)', '("total")'), r"needs a tuple as required"),
        (edited('("total",)', '("sum",)'), r"in required that its schema lacks \(sum\): add them"),
        (edited('"You read an invoice."', '" "'), r"has no prompt"),
        (edited("schema=Invoice", "schema=dict"), r"needs a pydantic model as its schema"),
        (
            edited("text: str", "text: Callable[[], int]"),
            r"has a schema that no model can be given",
        ),
    ],
)
def test_a_fault_names_the_file_and_what_to_do(write: Write, source: str, said: str) -> None:
    path = write("own", source)
    with pytest.raises(ConfigurationError, match=said) as raised:
        load_own_profiles([path])
    assert path in str(raised.value)


def test_a_file_that_is_not_there_names_the_setting() -> None:
    with pytest.raises(ConfigurationError, match=r"/no/file\.py.*correct EXTRACTION_PROFILES"):
        load_own_profiles(["/no/file.py"])


def test_a_fixed_file_is_loaded(write: Write) -> None:
    faulty = edited("ALIAS = INVOICE", 'NEXT = Profile("next", dict, "Read.")')
    path = write("own", faulty)
    with pytest.raises(ConfigurationError):
        load_own_profiles([path])
    assert "invoice" not in profile_names()
    write("own", SOURCE)
    assert load_own_profiles([path]) == ("invoice",)
