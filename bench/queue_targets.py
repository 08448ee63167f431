"""What the queue bench wants of the rates it takes."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.pipeline import Target
from bench.queue_assignment import ENQUEUE, PROCESS, name_way
from bench.queue_contenders import WORKER_LANES, Contender, Kind, Store

OVER_PEER_ENQUEUE = 5.0
OVER_PEER_PROCESS = 4.0
OF_FLOOR = 0.5


@dataclass(frozen=True, slots=True)
class Result:
    """Jobs per second of one contender in every round."""

    contender: Contender
    figure: str
    rates: tuple[float, ...]

    @property
    def best(self) -> float:
        return max(self.rates)

    @property
    def slowest(self) -> float:
        return min(self.rates)


@dataclass(frozen=True, slots=True)
class Board:
    """All rates of one bench. The best round of each contender counts."""

    results: Sequence[Result]

    def judge(self) -> list[Target]:
        """Like is compared with like: what needs a server with peers on the same servers, a file
        with the peer on a file."""
        targets = [self._tell_noise()]
        if self._peers(PROCESS, on_server=True):
            targets += [self._judge_enqueue(), self._tell_enqueue_to_file()]
            targets += [self._judge_process(50), self._judge_process(200)]
            targets += self._tell_file()
        targets += [self._judge_floor(50), self._judge_floor(200)]
        targets += [self._tell_lane(50), self._tell_lane(200)]
        return [*targets, self._tell_sqlite_floor()]

    def _judge_enqueue(self) -> Target:
        peer, ours = self._best_peer(ENQUEUE, on_server=True), self._own(Store.POSTGRES, ENQUEUE)
        return _wanted("bulk enqueue on Postgres", ours, peer, OVER_PEER_ENQUEUE)

    def _tell_enqueue_to_file(self) -> Target:
        peer, ours = self._best_peer(ENQUEUE, on_server=False), self._own(Store.SQLITE, ENQUEUE)
        return _told("bulk enqueue on SQLite", ours, peer)

    def _judge_process(self, claims: int) -> Target:
        """A worker as it is, with its lanes, against a worker as it is."""
        ours = self._own(Store.POSTGRES, name_way(claims, WORKER_LANES))
        peer = self._best_peer(PROCESS, on_server=True)
        return _wanted(f"processing on Postgres, claims of {claims}", ours, peer, OVER_PEER_PROCESS)

    def _judge_floor(self, claims: int) -> Target:
        """The same worker as against peers, with its lanes; the floor is one connection."""
        ours = self._own(Store.POSTGRES, name_way(claims, WORKER_LANES))
        what = f"processing on Postgres, claims of {claims}"
        return _wanted(what, ours, self._floor(claims), OF_FLOOR)

    def _tell_lane(self, claims: int) -> Target:
        """One connection against one connection."""
        ours = self._own(Store.POSTGRES, name_way(claims))
        return _told(f"one lane on Postgres, claims of {claims}", ours, self._floor(claims))

    def _floor(self, claims: int) -> Result:
        return self._find(Kind.FLOOR, Store.POSTGRES, name_way(claims))

    def _tell_file(self) -> list[Target]:
        """A file is nearer than any server: what that means for either side is told."""
        peer, figure = self._best_peer(PROCESS, on_server=False), name_way(200, WORKER_LANES)
        return [
            _told(f"processing on {store}, claims of 200", self._own(store, figure), peer)
            for store in (Store.POSTGRES, Store.SQLITE)
        ]

    def _tell_sqlite_floor(self) -> Target:
        ours, floor = (
            self._find(kind, Store.SQLITE, name_way(200)) for kind in (Kind.OURS, Kind.FLOOR)
        )
        return _told("one lane on SQLite, claims of 200", ours, floor)

    def _tell_noise(self) -> Target:
        shares = sorted(one.slowest / one.best for one in self.results)
        told = f"{shares[len(shares) // 2]:.0%} (worst contender {shares[0]:.0%})"
        return Target("slowest round over best, median contender", "", told, True)

    def _own(self, store: Store, figure: str) -> Result:
        return self._find(Kind.OURS, store, figure)

    def _find(self, kind: Kind, store: Store, figure: str) -> Result:
        """Without the mirror in Redis: that is a way of its own."""
        return next(
            one
            for one in self.results
            if (one.contender.kind, one.contender.store, one.figure) == (kind, store, figure)
            and not one.contender.way
        )

    def _best_peer(self, figure: str, *, on_server: bool) -> Result:
        return max(self._peers(figure, on_server=on_server), key=lambda one: one.best)

    def _peers(self, figure: str, *, on_server: bool) -> list[Result]:
        return [
            one
            for one in self.results
            if one.contender.kind is Kind.PEER
            and one.figure == figure
            and one.contender.on_server is on_server
        ]


def _wanted(what: str, ours: Result, other: Result, least: float) -> Target:
    ratio = ours.best / other.best
    return Target(_name(what, other), f"≥ {least:g} ×", _measured(ours, other), ratio >= least)


def _told(what: str, ours: Result, other: Result) -> Target:
    return Target(_name(what, other), "", _measured(ours, other), True)


def _name(what: str, other: Result) -> str:
    return f"{what}, over {other.contender.name}"


def _measured(ours: Result, other: Result) -> str:
    ratio = ours.best / other.best
    return f"{ratio:.2f} × ({ours.best:,.0f} against {other.best:,.0f} jobs/s)"
