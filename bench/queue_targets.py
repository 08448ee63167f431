"""What the queue bench wants of the rates it takes."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.figures import Figure
from bench.queue_assignment import ENQUEUE, PROCESS, name_way
from bench.queue_contenders import MIRRORED, WORKER_LANES, Contender, Kind, Store

OVER_PEER_ENQUEUE = 5.0
OVER_PEER_PROCESS = 4.0
OF_FLOOR = 0.5
MIRRORED_OF_FLOOR = 0.4
_UNIT = "jobs/s"


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
    def median(self) -> float:
        return statistics.median(self.rates)

    @property
    def slowest(self) -> float:
        return min(self.rates)


@dataclass(frozen=True, slots=True)
class Board:
    """All rates of one bench. The best round of each contender counts."""

    results: Sequence[Result]

    def figures(self) -> list[Figure]:
        """Like is compared with like: what needs a server with peers on the same servers, a file
        with the peer on a file."""
        figures = [self._noise()]
        if self._peers(PROCESS, on_server=True):
            figures += self._over_peers()
        for claims in (50, 200):
            wanted = OF_FLOOR if claims == 50 else None
            figures += [
                self._of_floor(claims, lanes=1, wanted=wanted),
                self._of_floor(claims, lanes=WORKER_LANES, wanted=OF_FLOOR),
            ]
        mirrored = self._find(Kind.OURS, Store.POSTGRES, name_way(50), MIRRORED)
        what = "one lane with the mirror in Redis, claims of 50"
        figures.append(
            _ratio("mirrored_over_sql", what, mirrored, self._floor(50), MIRRORED_OF_FLOOR)
        )
        ours, floor = (
            self._find(kind, Store.SQLITE, name_way(200)) for kind in (Kind.OURS, Kind.FLOOR)
        )
        what = "one lane on SQLite, claims of 200"
        return [*figures, _ratio("sqlite_lane_over_sql", what, ours, floor)]

    def _over_peers(self) -> list[Figure]:
        enqueued = self._own(Store.POSTGRES, ENQUEUE)
        to_file = self._own(Store.SQLITE, ENQUEUE)
        peer = self._best_peer(PROCESS, on_server=True)
        on_file = self._best_peer(PROCESS, on_server=False)
        figures = [
            _ratio(
                "enqueue_over_peer",
                "bulk enqueue on Postgres",
                enqueued,
                self._best_peer(ENQUEUE, on_server=True),
                OVER_PEER_ENQUEUE,
            ),
            _ratio(
                "sqlite_enqueue_over_peer",
                "bulk enqueue on SQLite",
                to_file,
                self._best_peer(ENQUEUE, on_server=False),
            ),
        ]
        # A worker as it is, with its threads, against a worker as it is.
        for claims in (50, 200):
            ours = self._own(Store.POSTGRES, name_way(claims, WORKER_LANES))
            what = f"processing on Postgres, claims of {claims}"
            figures.append(
                _ratio(f"process_{claims}_over_peer", what, ours, peer, OVER_PEER_PROCESS)
            )
        # A file is nearer than any server: what that means for either side is told.
        for store in (Store.POSTGRES, Store.SQLITE):
            ours = self._own(store, name_way(200, WORKER_LANES))
            what = f"processing on {store}, claims of 200"
            figures.append(_ratio(f"{store.lower()}_process_over_file_peer", what, ours, on_file))
        return figures

    def _of_floor(self, claims: int, lanes: int, wanted: float | None) -> Figure:
        """The floor is one connection."""
        ours = self._own(Store.POSTGRES, name_way(claims, lanes))
        named = "one lane" if lanes == 1 else f"{lanes} lanes"
        key = "lane" if lanes == 1 else "worker"
        what = f"{named} on Postgres, claims of {claims}"
        return _ratio(f"{key}_{claims}_over_sql", what, ours, self._floor(claims), wanted)

    def _floor(self, claims: int) -> Result:
        return self._find(Kind.FLOOR, Store.POSTGRES, name_way(claims))

    def _noise(self) -> Figure:
        shares = sorted(one.slowest / one.best for one in self.results)
        worst = f"worst contender {shares[0]:.2f}"
        what = "slowest round over best, median contender"
        return Figure("queue.noise", what, statistics.median(shares), detail=worst)

    def _own(self, store: Store, figure: str) -> Result:
        return self._find(Kind.OURS, store, figure)

    def _find(self, kind: Kind, store: Store, figure: str, way: str = "") -> Result:
        return next(
            one
            for one in self.results
            if (one.contender.kind, one.contender.store, one.figure) == (kind, store, figure)
            and one.contender.way == way
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


def _ratio(key: str, what: str, ours: Result, other: Result, wanted: float | None = None) -> Figure:
    named = f"{what}, over {other.contender.name}"
    return Figure.ratio(f"queue.{key}", named, ours.rates, other.rates, wanted=wanted, unit=_UNIT)
