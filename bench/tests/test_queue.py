"""The queue bench runs from end to end, and knows a miss when it sees one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.queue_assignment import ENQUEUE, PROCESS, name_way
from bench.queue_contenders import OURS, PEERS, WORKER_LANES, Contender, Kind
from bench.queue_environments import PEERS as PEERS_FOLDER
from bench.queue_targets import Board, Result

ROOT = Path(__file__).parents[2]
SLOW, QUICK = 1_000.0, 10_000.0
OURS_QUICK = {
    "penstock on Postgres": QUICK,
    "penstock on SQLite": QUICK,
    "penstock on Postgres, Redis mirror": QUICK,
}
OF_FLOOR = {"lane_50_over_sql", "worker_50_over_sql", "worker_200_over_sql", "mirrored_over_sql"}
OTHERS = {
    "intake_over_bare",
    "intake_lost",
    "postgres_rescue_p99",
    "sqlite_rescue_p99",
    "processes",
}
OF_PEERS = {"enqueue_over_peer", "process_50_over_peer", "process_200_over_peer"}


def named(name: str) -> Contender:
    return next(one for one in [*OURS, *PEERS] if one.name == name)


def figures(contender: Contender) -> list[str]:
    if contender.kind is Kind.PEER:
        return [ENQUEUE, PROCESS]
    return [ENQUEUE, *(name_way(c, lanes) for c in (50, 200) for lanes in (1, WORKER_LANES))]


def board(rates: dict[str, float], *, with_peers: bool = True) -> Board:
    """Every contender at a rate of 1,000, in two rounds, but for those that are named."""
    contenders = [*OURS, *PEERS] if with_peers else OURS
    return Board(
        [
            Result(one, figure, (rates.get(one.name, SLOW) / 2, rates.get(one.name, SLOW)))
            for one in contenders
            for figure in figures(one)
        ]
    )


def missed(rates: dict[str, float], *, with_peers: bool = True) -> set[str]:
    found = board(rates, with_peers=with_peers).figures()
    assert {one.key for one in found if one.wanted is not None} == {
        f"queue.{name}" for name in (OF_FLOOR | OF_PEERS if with_peers else OF_FLOOR)
    }
    return {one.key.removeprefix("queue.") for one in found if one.met is False}


def test_a_quick_bench_without_peers_measures_every_figure_of_ours(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench.queue", "--quick", "--without-peers", "--json", str(written)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.stderr == ""
    # Sizes this small miss a target now and then.
    assert done.returncode in (0, 1)
    assert "NOT COMPARED with peers" in done.stdout
    figures = {one["key"]: one["value"] for one in json.loads(written.read_text("utf-8"))}
    assert figures.keys() >= {f"queue.{name}" for name in OF_FLOOR | OTHERS}
    assert figures["queue.intake_lost"] == 0


def test_ten_times_the_best_peer_and_the_floor_meets_every_target() -> None:
    assert missed(OURS_QUICK) == set()


def test_one_quick_peer_on_a_server_is_the_one_to_beat_there() -> None:
    assert missed(OURS_QUICK | {"arq": QUICK / 3}) == OF_PEERS


def test_a_peer_on_a_file_is_not_what_a_server_is_judged_by() -> None:
    assert missed(OURS_QUICK | {"huey on SQLite": QUICK}) == set()


def test_less_than_half_the_floor_is_a_miss() -> None:
    assert missed(OURS_QUICK | {"bare SQL on Postgres": QUICK * 2.1}) == OF_FLOOR - {
        "mirrored_over_sql"
    }
    assert missed(OURS_QUICK | {"bare SQL on Postgres": QUICK * 2.6}) == OF_FLOOR


def test_the_mirror_in_redis_is_judged_by_its_own_figure_alone() -> None:
    rates = {"penstock on Postgres, Redis mirror": QUICK * 100}
    assert missed(rates) == OF_PEERS


def test_without_peers_only_the_floor_is_judged() -> None:
    assert missed({}, with_peers=False) == set()


@pytest.mark.parametrize("peer", PEERS, ids=lambda one: one.name)
def test_what_a_peer_needs_is_pinned(peer: Contender) -> None:
    lines = (PEERS_FOLDER / peer.requirements).read_text(encoding="utf-8").splitlines()
    needed = [line for line in lines if not line.startswith("#")]
    assert needed
    assert all("==" in line for line in needed)
    assert (ROOT / peer.module.replace(".", "/")).with_suffix(".py").exists()
