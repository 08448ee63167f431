"""Users' extractors reach the children, wherever they were defined, and are told apart by code."""

import sys
import threading
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from penstock.documents import ExtractedText, RawDocument, StoredDocument
from penstock.errors import ConfigurationError, UsageError
from penstock.isolation.pool import ChildPool
from penstock.text import custom as custom_module
from penstock.text.custom import (
    Extensions,
    Extract,
    collect_extensions,
    extractor,
    load_extensions,
    registered_extractors,
)
from penstock.text.extract import TextPool

pytestmark = pytest.mark.full_suite

SOURCE = """
from penstock import extractor

@extractor(suffixes=["mill"])
def {name}(raw):
    return "found by {name}"
"""


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers or installs, no other test meets."""
    monkeypatch.setattr(custom_module, "_registered", {})
    monkeypatch.setattr(custom_module, "entry_points", lambda group: [])  # noqa: ARG005


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Writes modules that can be imported as long as the test runs."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write(name: str, source: str) -> Path:
        for added in set(sys.modules) - before:
            monkeypatch.delitem(sys.modules, added)
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        return path

    return write


def names() -> list[str]:
    return [custom.name for custom in registered_extractors()]


def greet(word: str) -> Extract:
    """An extractor that no other process could import."""
    return lambda raw: f"{word} {raw.name}"


def test_without_extractors_there_is_nothing_to_carry() -> None:
    assert collect_extensions() == Extensions()
    load_extensions(Extensions())
    assert names() == []


# From the program to its children


def test_a_function_of_the_program_travels_with_what_it_holds() -> None:
    extractor(name="greeter", company="mills")(greet("hello"))
    carried = collect_extensions()
    custom_module.remove_extractor("greeter")
    load_extensions(carried)
    [custom] = registered_extractors()
    assert (custom.name, custom.company) == ("greeter", "mills")
    assert custom.extract(RawDocument("mill", b"")) == "hello mill"


def test_children_use_the_extractors_of_the_program(tmp_path: Path) -> None:
    extractor(name="greeter", company="mills")(greet("hello"))
    path = tmp_path / "job.txt"
    path.write_text("plain text")
    with ChildPool(processes=1) as children:
        pool = TextPool(children, extensions=collect_extensions())
        ours, theirs = pool.extract_many(
            [
                StoredDocument("job", str(path), 10, source="mills"),
                StoredDocument("job", str(path), 10, source="locks"),
            ]
        )
    assert isinstance(ours, ExtractedText)
    assert isinstance(theirs, ExtractedText)
    assert (ours.text, theirs.text) == ("hello job", "plain text")


def test_a_function_that_cannot_travel_is_refused_before_any_work() -> None:
    lock = threading.Lock()
    extractor(name="locked")(lambda raw: raw.name if lock.locked() else None)
    with pytest.raises(UsageError, match=r"\(locked\) cannot be sent .* inside the function"):
        collect_extensions()


def test_a_function_that_does_not_arrive_is_no_fault_of_the_documents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ghost = ModuleType("ghost")
    exec("def haunt(raw):\n    return 'boo'", ghost.__dict__)
    monkeypatch.setitem(sys.modules, "ghost", ghost)
    extractor()(ghost.haunt)
    carried = collect_extensions()
    monkeypatch.delitem(sys.modules, "ghost")
    with pytest.raises(ConfigurationError, match=r"ghost.*in a module that can be imported"):
        load_extensions(carried)


# Modules by name


def test_a_file_that_is_named_is_loaded_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text(SOURCE.format(name="from_file"))
    monkeypatch.chdir(tmp_path)
    carried = collect_extensions(["own.py"])
    monkeypatch.chdir("/")
    load_extensions(carried)
    assert names() == ["from_file"]


def test_a_module_that_is_named_is_imported(write_module: Callable[[str, str], Path]) -> None:
    write_module("mill_extractors", SOURCE.format(name="from_module"))
    load_extensions(collect_extensions(["mill_extractors"]))
    assert names() == ["from_module"]


def test_an_installed_package_brings_its_extractors(
    write_module: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_module("mill_extractor_package", SOURCE.format(name="from_package"))
    entry = EntryPoint("mills", "mill_extractor_package:from_package", "penstock.extractors")
    monkeypatch.setattr(custom_module, "entry_points", lambda group: [entry])  # noqa: ARG005
    load_extensions(collect_extensions())
    assert names() == ["from_package"]


def test_a_module_is_loaded_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    source = f"with open({str(log)!r}, 'a') as log:\n    log.write('loaded ')"
    (tmp_path / "own.py").write_text(source)
    carried = collect_extensions([str(tmp_path / "own.py")])
    load_extensions(carried)
    load_extensions(carried)
    assert log.read_text() == "loaded "


@pytest.mark.parametrize("module", ["no_such_module", "/no/such/file.py"])
def test_a_module_that_is_not_there_names_the_setting(module: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{module}.*correct PENSTOCK_EXTRACTORS"):
        load_extensions(collect_extensions([module]))


def test_a_module_that_lacks_a_library_says_what_to_install(
    write_module: Callable[[str, str], Path],
) -> None:
    write_module("needy", "import no_such_library.deep")
    with pytest.raises(ConfigurationError, match=r"needy.*`pip install no_such_library`"):
        load_extensions(collect_extensions(["needy"]))


@pytest.mark.parametrize("source", ["1 / 0", "def broken(:"])
def test_a_module_that_is_broken_is_to_be_mended(
    write_module: Callable[[str, str], Path], source: str
) -> None:
    write_module("broken", source)
    with pytest.raises(ConfigurationError, match=r"broken cannot be loaded .* fix that module"):
        load_extensions(collect_extensions(["broken"]))


def test_a_mended_module_is_loaded_after_all(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    carried = collect_extensions([str(path)])
    with pytest.raises(ConfigurationError):
        load_extensions(carried)
    path.write_text(SOURCE.format(name="mended"))
    load_extensions(carried)
    assert names() == ["mended"]


# Fingerprints


def test_the_same_code_has_the_same_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SOURCE.format(name="first"))
    extractor(name="greeter")(greet("hello"))
    first = collect_extensions([str(tmp_path / "own.py")])
    assert first.fingerprint
    assert collect_extensions([str(tmp_path / "own.py")]).fingerprint == first.fingerprint


def test_other_code_has_another_fingerprint(write_module: Callable[[str, str], Path]) -> None:
    prints = {collect_extensions().fingerprint}
    for name in ("first", "second"):
        path = write_module("changing", SOURCE.format(name=name))
        prints.add(collect_extensions(["changing"]).fingerprint)
        prints.add(collect_extensions([str(path)]).fingerprint)
    assert len(prints) == 5


def test_another_function_of_the_program_has_another_fingerprint() -> None:
    def shout(raw: RawDocument) -> str:
        return raw.name.upper()

    extractor(name="same")(greet("hello"))
    before = collect_extensions().fingerprint
    extractor(name="same")(shout)
    assert collect_extensions().fingerprint != before


def test_a_function_typed_into_a_prompt_has_a_fingerprint_too() -> None:
    typed: dict[str, Extract] = {}
    exec("def typed(raw):\n    return 'typed'", typed)
    extractor()(typed["typed"])
    assert collect_extensions().fingerprint
