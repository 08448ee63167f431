"""The record of figures is merged, marked and written into the page without a number by hand."""

import re
import sys
from pathlib import Path

import pytest

from bench import report
from bench.figures import Figure
from bench.performance import (
    PAGE,
    Circumstances,
    Record,
    Recorded,
    read_record,
    render,
    write_record,
)
from bench.report import BENCHES, Bench, BenchFailed, judge, measure_all, run_bench, show_output

FIRST = Circumstances("2026-01-01", "aaa", "2 cores of X")
SECOND = Circumstances("2026-02-02", "bbb", "2 cores of X")
ELSEWHERE = Circumstances("2026-02-03", "bbb", "8 cores of Y")
BLOCK = re.compile(r"<!-- figures: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def speed(value: float, *, key: str = "pipeline.speed", wanted: float | None = 0.9) -> Figure:
    return Figure(key, f"{key} over bare", value, wanted=wanted, detail="9 against 10")


def memory(value: float) -> Figure:
    return Figure("size.memory", "memory", value, "MB", 100.0, lower_is_better=True)


def page(*names: str) -> str:
    blocks = (f"<!-- figures: {name} -->\nold\n<!-- end -->\n" for name in names)
    return f"# Performance\n\nProse.\n\n{'And more.'.join(blocks)}\nThe end.\n"


def test_figures_of_a_report_stand_beside_those_of_the_one_before() -> None:
    record = Record(None, {}).with_figures("pipeline", [speed(0.97)], FIRST)
    assert record.sections["pipeline"].recorded[0].previous is None
    record = record.with_figures("pipeline", [speed(0.95), speed(2.0, key="new")], SECOND)
    again, new = record.sections["pipeline"].recorded
    assert (again.figure.value, again.previous, new.previous) == (0.95, 0.97, None)


def test_a_report_of_some_benches_keeps_the_others_with_their_date() -> None:
    record = Record(None, {}).with_figures("pipeline", [speed(0.97)], FIRST)
    record = record.with_figures("size", [memory(50)], SECOND)
    written = render(page("pipeline", "size"), record)
    of_pipeline, of_size = (found.group() for found in BLOCK.finditer(written))
    assert "Figures of 2026-01-01, commit aaa." in of_pipeline
    assert "Figures of" not in of_size
    assert record.sections["pipeline"].recorded[0].figure.value == 0.97


def test_older_figures_of_another_machine_name_it() -> None:
    record = Record(None, {}).with_figures("pipeline", [speed(0.97)], FIRST)
    written = render(page("pipeline"), record.with_figures("size", [], ELSEWHERE))
    assert "Figures of 2026-01-01, commit aaa, 2 cores of X." in written


@pytest.mark.parametrize(
    ("figure", "previous", "worse"),
    [
        (speed(0.81), 0.97, True),
        (speed(0.88), 0.97, False),
        (speed(1.5), 0.97, False),
        (speed(0.81), None, False),
        (memory(56), 50.0, True),
        (memory(54), 50.0, False),
        (memory(20), 50.0, False),
        (memory(1), 0.0, True),
        (memory(0), 0.0, False),
    ],
)
def test_more_than_a_tenth_in_the_wrong_direction_is_worse(
    figure: Figure, previous: float | None, worse: bool
) -> None:
    assert Recorded(figure, previous).worse is worse


def test_what_got_worse_is_marked_beside_its_verdict() -> None:
    assert Recorded(speed(0.81), 0.97).remark == "**missed**; worse: 0.97 → 0.81"
    assert Recorded(speed(1.5), 2.0).remark == "met; worse: 2 → 1.5"
    assert Recorded(speed(0.95), 0.97).remark == "met"
    assert Recorded(speed(0.95, wanted=None), None).remark == ""


def test_a_bench_that_failed_keeps_its_figures_and_says_so() -> None:
    record = Record(None, {}).with_figures("pipeline", [speed(0.97)], FIRST)
    record = record.with_failure("pipeline", "ValueError: no pages", SECOND)
    written = render(page("summary", "pipeline"), record)
    assert "failed to run in the latest report:** `ValueError: no pages`" in written
    assert "Figures of 2026-01-01, commit aaa." in written
    assert "pipeline.speed over bare" in written
    assert "**failed to run**; figures of 2026-01-01, commit aaa" in written


def test_a_bench_that_runs_again_has_no_failure_any_more() -> None:
    record = Record(None, {}).with_failure("pipeline", "ValueError", FIRST)
    assert judge(record, ["pipeline"]) == 1
    record = record.with_figures("pipeline", [speed(0.97)], SECOND)
    assert record.sections["pipeline"].failure is None
    assert judge(record, ["pipeline"]) == 0


def test_a_missed_target_of_what_was_run_counts_and_of_the_rest_does_not() -> None:
    record = Record(None, {}).with_figures("pipeline", [speed(0.5)], FIRST)
    record = record.with_figures("size", [memory(50)], SECOND)
    assert judge(record, ["size"]) == 0
    assert judge(record, ["pipeline"]) == 1


def test_only_what_is_between_markers_is_written() -> None:
    record = Record(None, {}).with_figures("pipeline", [speed(0.97)], FIRST)
    written = render(page("pipeline", "never"), record)
    assert "old" not in written
    assert BLOCK.sub("", written) == BLOCK.sub("", page("pipeline", "never"))
    assert "| pipeline.speed over bare | ≥ 0.9 × | 0.97 × | met | 9 against 10 |" in written
    assert "Not measured yet." in written
    assert render(written, record) == written


def test_the_summary_counts_targets_and_names_the_machine() -> None:
    figures = [speed(0.97), speed(0.5, key="other"), speed(0.5, key="third", wanted=None)]
    record = Record(None, {}).with_figures("pipeline", figures, FIRST)
    written = render(page("summary"), record)
    assert "2026-01-01, commit aaa, 2 cores of X." in written
    assert "| `pipeline` | 1 | 1 | 0 | in this report |" in written


def test_a_cell_cannot_break_its_table() -> None:
    figure = Figure("a", "one | two\nthree", 1.0)
    written = render(page("a"), Record(None, {}).with_figures("a", [figure], FIRST))
    assert "| one \\| two three |" in written


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = Record(None, {}).with_figures("pipeline", [speed(0.97)], FIRST)
    record = record.with_figures("pipeline", [speed(0.9)], SECOND)
    record = record.with_failure("size", "ValueError", SECOND)
    path = tmp_path / "performance.json"
    write_record(record, path)
    assert read_record(path) == record
    assert read_record(tmp_path / "none.json") == Record(None, {})


def test_a_failing_bench_does_not_end_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(name: str, _: object) -> list[Figure]:
        if name == "broken":
            raise BenchFailed("ValueError: no pages")
        return [speed(0.97)]

    written: list[Record] = []
    monkeypatch.setattr(report, "run_bench", run)
    monkeypatch.setattr(report, "write", written.append)
    monkeypatch.setattr(report, "wait_until_quiet", lambda: 30.0)
    record = measure_all(Record(None, {}), [Bench("broken"), Bench("pipeline")], FIRST)
    assert record.sections["broken"].failure == "ValueError: no pages"
    assert record.sections["pipeline"].recorded[0].figure.value == 0.97
    assert record.sections["pipeline"].busy_percent == 30
    assert written[-1] == record


def test_figures_of_a_busy_machine_say_so() -> None:
    busy = Record(None, {}).with_figures("pipeline", [speed(0.97)], FIRST, busy_percent=80.4)
    quiet = Record(None, {}).with_figures("pipeline", [speed(0.97)], FIRST, busy_percent=5.0)
    assert "used 80 % of the machine" in render(page("pipeline"), busy)
    assert "| in this report; on a busy machine |" in render(page("summary"), busy)
    assert "of the machine" not in render(page("pipeline"), quiet)


def test_a_bench_that_is_not_there_fails_with_its_last_words_and_no_path() -> None:
    with pytest.raises(BenchFailed, match=r"^python: No module named bench\.never$"):
        run_bench("never", ())


SLEEPING = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("started", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("stopped its servers")
"""


def test_a_bench_that_takes_too_long_is_interrupted_and_can_stop_its_servers() -> None:
    command = [sys.executable, "-c", SLEEPING]
    assert show_output(command, limit_seconds=1.0) == "stopped its servers"


def test_every_bench_has_its_place_on_the_page() -> None:
    places = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert sorted(places) == sorted(["summary", *(bench.name for bench in BENCHES)])


def test_the_page_is_what_the_record_says_and_no_number_is_typed_by_hand() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert render(text, read_record()) == text
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", BLOCK.sub("", text))
    assert re.findall(r"(?<![\w-])\d[\d.,]*", prose) == []
