"""The pool gives every input its due, whatever its neighbours do."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.documents import Fault
from penstock.errors import ConfigurationError, ErrorClass, Interrupted
from penstock.isolation.pool import ChildPool, ChildTask

from . import misbehaving

pytestmark = pytest.mark.full_suite

DEADLINE_SECONDS = 60.0


@pytest.fixture(scope="module")
def pool() -> Iterator[ChildPool]:
    with ChildPool(processes=2, timeout_seconds=2.0) as shared:
        yield shared


def make_job(function: str = misbehaving.PATH, **options: Any) -> ChildTask[str, str]:
    return ChildTask(
        function=function,
        doing="obeying it",
        name_of=lambda order: f"order {order!r}",
        size_of=len,
        options=options,
    )


def obey(pool: ChildPool, *orders: str, **options: Any) -> list[str | Fault]:
    return pool.map(make_job(**options), orders)


def kind_of(outcome: str | Fault) -> ErrorClass | None:
    return outcome.kind if isinstance(outcome, Fault) else None


def child_of(outcome: str | Fault) -> int:
    assert isinstance(outcome, str)
    return int(outcome.split()[-1])


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {DEADLINE_SECONDS:g} s"
        time.sleep(0.02)


def test_results_come_back_in_order_with_the_options_obeyed(pool: ChildPool) -> None:
    outcomes = obey(pool, *[f"task {i}" for i in range(50)], greeting="did")
    assert [str(outcome).split(" by ")[0] for outcome in outcomes] == [
        f"did {i}" for i in range(50)
    ]


def test_an_empty_batch_needs_no_children() -> None:
    before = psutil.Process().children(recursive=True)
    with ChildPool(processes=1) as unused:
        assert obey(unused) == []
        assert psutil.Process().children(recursive=True) == before


def test_only_the_crashing_input_pays(pool: ChildPool) -> None:
    outcomes = obey(pool, *["fine"] * 10, "crash", *["fine"] * 10)
    assert outcomes.pop(10) == Fault(
        ErrorClass.UNKNOWN, "order 'crash': the process obeying it crashed (SIGSEGV)"
    )
    assert [kind_of(outcome) for outcome in outcomes] == [None] * 20


def test_only_the_hanging_input_pays(pool: ChildPool) -> None:
    outcomes = obey(pool, *["fine"] * 10, "hang", *["fine"] * 10)
    assert outcomes.pop(10) == Fault(
        ErrorClass.TIMEOUT, "order 'hang': obeying it was stopped after 2 s"
    )
    assert [kind_of(outcome) for outcome in outcomes] == [None] * 20


def test_several_culprits_are_all_found(pool: ChildPool) -> None:
    orders = ("crash", "fine", "crash", "hang", "fine", "refuse", "raise", "return")
    assert [kind_of(outcome) for outcome in obey(pool, *orders)] == [
        ErrorClass.UNKNOWN,
        None,
        ErrorClass.UNKNOWN,
        ErrorClass.TIMEOUT,
        None,
        ErrorClass.UNSUPPORTED,
        ErrorClass.UNKNOWN,
        ErrorClass.EMPTY,
    ]


def test_eating_all_memory_is_too_large(pool: ChildPool) -> None:
    outcomes = obey(pool, "fine", "eat", "fine")
    assert [kind_of(outcome) for outcome in outcomes] == [None, ErrorClass.TOO_LARGE, None]
    assert "order 'eat': obeying it needs more memory" in str(outcomes[1])


def test_an_input_larger_than_the_memory_allows_is_not_even_sent() -> None:
    with ChildPool(processes=1, memory_bytes=800) as unused:
        assert kind_of(obey(unused, "x" * 101)[0]) == ErrorClass.TOO_LARGE


@pytest.mark.parametrize("path", ["no.such.module:obey", f"{misbehaving.__name__}:nothing"])
def test_a_function_that_is_not_there_is_no_fault_of_the_inputs(pool: ChildPool, path: str) -> None:
    with pytest.raises(ConfigurationError, match=path):
        pool.map(make_job(path), ["fine", "fine"])


def test_a_wrong_setting_is_no_fault_of_the_inputs(pool: ChildPool) -> None:
    with pytest.raises(ConfigurationError, match="a setting is wrong"):
        obey(pool, "fine", "misconfigure")


def test_children_are_kept_between_calls(pool: ChildPool) -> None:
    calls = [obey(pool, *["fine"] * 40) for _ in range(3)]
    assert len({child_of(outcome) for outcomes in calls for outcome in outcomes}) <= 2


def test_children_find_the_warm_modules_imported() -> None:
    with ChildPool(processes=1, warmup=("no.such.module", "xml.dom.pulldom")) as warm:
        assert obey(warm, "loaded xml.dom.pulldom", "loaded xml.dom.expatbuilder") == [
            "True",
            "False",
        ]


def test_different_jobs_share_the_children_at_once(pool: ChildPool) -> None:
    results: dict[int, list[str | Fault]] = {}

    def work(number: int) -> None:
        results[number] = obey(pool, *[f"task {i}" for i in range(40)], greeting=f"job{number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    for number in range(3):
        done = [str(outcome).split(" by ")[0] for outcome in results[number]]
        assert done == [f"job{number} {i}" for i in range(40)]
    assert len({child_of(outcome) for outcomes in results.values() for outcome in outcomes}) <= 2


def test_one_threads_hang_does_not_cost_the_other_its_results(pool: ChildPool) -> None:
    results: list[list[str | Fault]] = []
    hanging = threading.Thread(target=lambda: results.append(obey(pool, "hang")))
    hanging.start()
    outcomes = obey(pool, *["fine"] * 30)
    hanging.join(DEADLINE_SECONDS)
    assert [kind_of(outcome) for outcome in outcomes] == [None] * 30
    assert kind_of(results[0][0]) == ErrorClass.TIMEOUT


def test_an_idle_child_that_dies_is_replaced() -> None:
    with ChildPool(processes=1) as lonely:
        child = psutil.Process(child_of(obey(lonely, "fine")[0]))
        child.kill()
        wait_until(lambda: not child.is_running(), "the end of the child")
        assert kind_of(obey(lonely, "fine")[0]) is None


def test_children_make_no_noise(capfd: pytest.CaptureFixture[str]) -> None:
    with ChildPool(processes=1) as loud:
        assert kind_of(obey(loud, "shout")[0]) is None
    assert capfd.readouterr() == ("", "")


def test_a_closed_pool_says_so() -> None:
    closed = ChildPool(processes=1)
    closed.close()
    with pytest.raises(Interrupted, match="closed"):
        obey(closed, "fine")


def test_closing_ends_the_children() -> None:
    with ChildPool(processes=1) as short:
        child = child_of(obey(short, "fine")[0])
    wait_until(lambda: not psutil.pid_exists(child), "the end of the child")


def test_a_call_that_waits_while_the_pool_is_closed_says_so(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    errors: list[Exception] = []

    def work() -> None:
        try:
            obey(doomed, f"hang {pid_file}")
        except Interrupted as error:
            errors.append(error)

    with ChildPool(processes=1) as doomed:
        waiting = threading.Thread(target=work)
        waiting.start()
        wait_until(pid_file.exists, "the hang")
    waiting.join(DEADLINE_SECONDS)
    assert "closed" in str(errors[0])


PROGRAM = f"""
import sys
from penstock.isolation.pool import ChildTask
from penstock.isolation.pool import ChildPool

print("main module runs", flush=True)
job = ChildTask({misbehaving.PATH!r}, "obeying it", str, len)
(outcome,) = ChildPool(processes=1).map(job, [sys.argv[1]])
print(outcome, flush=True)
"""


def start_program(folder: Path, order: str) -> subprocess.Popen[str]:
    script = folder / "program.py"
    script.write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, str(script), order],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_a_program_without_a_main_guard_runs_once_and_ends_without_closing(tmp_path: Path) -> None:
    with start_program(tmp_path, "main") as program:
        output, _ = program.communicate(timeout=DEADLINE_SECONDS)
    assert output.splitlines() == ["main module runs", "no main module"]
    assert program.returncode == 0


def test_a_hanging_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with start_program(tmp_path, f"hang {pid_file}") as program:
        try:
            wait_until(lambda: pid_file.exists() and bool(pid_file.read_text()), "the hang")
            child = psutil.Process(int(pid_file.read_text()))
        finally:
            program.kill()
    wait_until(lambda: not child.is_running(), "the end of the child")


SLOW_IMPORT = """
import pathlib, time
pathlib.Path("importing").touch()
time.sleep(1)
"""
INTERRUPTED = f"""
import signal, sys, threading
from penstock.isolation.pool import ChildPool, ChildTask

# An interrupt that the program itself survives.
signal.signal(signal.SIGINT, lambda *_: None)
job = ChildTask({misbehaving.PATH!r}, "obeying it", str, len)

def work():
    with ChildPool(processes=1, warmup=("slow_import",)) as pool:
        print(*pool.map(job, ["blocked"]))

if sys.argv[1] == "thread":
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
else:
    work()
print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


@pytest.mark.parametrize("where", ["main", "thread"])
def test_ctrl_c_while_children_are_prepared_prints_nothing_and_ends_none(
    tmp_path: Path, where: str
) -> None:
    """A terminal sends it to every process of the program."""
    (tmp_path / "slow_import.py").write_text(SLOW_IMPORT)
    places = os.pathsep.join([str(tmp_path), str(Path.cwd())])
    program = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, where],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": places},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until((tmp_path / "importing").exists, "the import")
        os.killpg(program.pid, signal.SIGINT)
        out, err = program.communicate(timeout=DEADLINE_SECONDS)
    finally:
        program.kill()
    assert err == ""
    # Neither the child nor the program is left with SIGINT blocked.
    assert out.split() == ["False", "False"]


CLOSING = f"""
import atexit, sys
from penstock.isolation.pool import ChildPool, ChildTask

pool = ChildPool(processes=1)
job = ChildTask({misbehaving.PATH!r}, "obeying it", str, len)
print(*pool.map(job, ["hello"]), flush=True)
if sys.argv[1] == "at exit":
    atexit.register(pool.close)
else:
    pool.close()
"""


@pytest.mark.parametrize("when", ["at exit", "before"])
def test_children_that_are_closed_have_ended_when_the_program_ends(when: str) -> None:
    program = subprocess.run(
        [sys.executable, "-c", CLOSING, when],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    assert program.stderr == ""
    assert not psutil.pid_exists(int(program.stdout.split()[-1]))
