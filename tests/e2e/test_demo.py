"""The demo, as a newcomer runs it: nothing given, a Prefect server of its own, twice."""

from collections.abc import Iterator

import pytest

from tests.e2e.commands import CommandLine, Done


@pytest.fixture(scope="module")
def command_line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path_factory.mktemp("demo") / "home")
    try:
        yield line
    finally:
        line.run("down")


@pytest.fixture(scope="module")
def first(command_line: CommandLine) -> Done:
    return command_line.run("demo")


@pytest.fixture(scope="module")
def second(command_line: CommandLine, first: Done) -> Done:
    del first
    return command_line.run("demo")


def test_the_first_demo_tells_what_became_of_each_document_and_why(first: Done) -> None:
    assert first.code == 0, first.err
    for told in (
        "near-duplicate of jobs/senior-python-engineer",
        "duplicate of haldane-cv-final-v2.pdf",
        "insufficient_text",
        "the file is empty (0 bytes)",
        "the PDF is broken",
        "fallback rate",
        "cost $0.0000",
        "penstock search",
        "the Prefect UI",
    ):
        assert told in first.out


def test_nothing_frightening_is_on_the_screen(first: Done, second: Done) -> None:
    for screen in (first.out + first.err, second.out + second.err):
        assert "Traceback" not in screen
        assert "warning" not in screen.lower()


def test_the_second_demo_says_that_nothing_changed_and_does_nothing(second: Done) -> None:
    assert second.code == 0, second.err
    assert "Nothing changed since the last time: no extraction, no embedding." in second.out
    assert "0 extracted (0 more reused), 0 embedded" in second.out


def test_the_demo_speaks_json_and_finds_things(command_line: CommandLine, second: Done) -> None:
    del second
    told = command_line.run("demo", "--json").json

    assert [run["status"] for run in told["runs"]] == ["finished", "finished"]
    assert [run["extractions"] + run["embeddings"] for run in told["runs"]] == [0, 0]
    assert all(hits for hits in told["searches"].values())
    assert any("<mark>" in hit["snippet"] for hits in told["searches"].values() for hit in hits)


def test_all_state_is_in_the_home(command_line: CommandLine, first: Done) -> None:
    del first
    assert {path.name for path in command_line.home.parent.iterdir()} == {"home"}
    assert (command_line.home / "penstock.db").exists()


def test_down_stops_the_server_and_says_so(command_line: CommandLine, second: Done) -> None:
    del second
    assert command_line.run("status", "--json").json["prefect"]["running"] is True
    assert command_line.run("down", "--json").json == {"stopped": True}
    assert command_line.run("status", "--json").json["prefect"]["running"] is False
    assert command_line.run("down", "--json").json == {"stopped": False}
