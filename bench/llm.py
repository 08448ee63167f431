"""Asking models through the whole path: `python -m bench.llm [httpx|limit|tasks|up] [--quick]`.

Against the stand-in for Groq, in a process of its own, on documents whose text is known: stages
`extract` and `embed`. The path is the flow `process` on SQLite, with a local Prefect server:
(httpx) throughput against bare httpx with as many threads, taking turns; (limit) a limit kept by
429s, beside the SDK's own retries; (tasks) the same drain with tasks and without, and its memory.
(up) the same as a flow run of the worker of a real `penstock up`. All of it by default.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from rich.console import Console

from bench.figures import Figure, add_options, report_figures
from bench.llm_documents import lay_in, read_end
from bench.llm_standin import Served, Standin
from bench.llm_targets import (
    Processed,
    judge_installation,
    judge_limit,
    judge_memory,
    judge_share,
    judge_throughput,
)
from bench.llm_up import penstock_up
from bench.measure import Measured, measure
from penstock.local.prefect_server import PrefectServer
from penstock.settings import load_settings

CONCURRENCY = 16
UP = "up"
console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is asked."""

    rounds: int
    documents: int
    latency_seconds: float
    limited_documents: int
    per_second: float
    many_documents: int
    served_documents: int


FULL = Sizes(5, 400, 0.3, 400, 20, 2_000, 1_600)
QUICK = Sizes(1, 32, 0.05, 40, 20, 64, 64)


@dataclass(slots=True)
class Session:
    """One bench, in a folder of its own, with one stand-in and one Prefect server."""

    folder: Path
    standin: Standin
    environment: dict[str, str]
    # New documents each time: a batch the flow has seen is taken from its cache.
    _seeds: Iterator[int] = field(default_factory=lambda: count(time.time_ns()))

    def new_seed(self) -> int:
        return next(self._seeds)

    def process(
        self, way: str, documents: int, latency_seconds: float, per_second: float | None = None
    ) -> Processed:
        """One drain of new documents, as the flow (`flow`) or without Prefect (`direct`)."""
        home = Path(tempfile.mkdtemp(prefix="home-", dir=self.folder))
        lay_in(load_settings(home=home), documents, self.new_seed())
        self.standin.set(latency_seconds, per_second)
        measured = self._measure("bench.llm_processing", way, home=home)
        ready, ended_at = read_end(load_settings(home=home))
        if ready != documents:
            raise SystemExit(f"{ready} of {documents} documents are ready: no time to tell")
        committed_at = ended_at - time.time() + time.monotonic()
        return Processed(measured, self.standin.look(), committed_at, latency_seconds)

    def ask(
        self, client: str, documents: int, latency_seconds: float, per_second: float | None = None
    ) -> tuple[Measured, Served]:
        """The same questions from a client alone (`httpx` or `sdk`)."""
        self.standin.set(latency_seconds, per_second)
        arguments = (self.standin.url, CONCURRENCY, documents, self.new_seed())
        measured = self._measure("bench.llm_clients", client, *map(str, arguments))
        return measured, self.standin.look()

    def _measure(self, module: str, *arguments: str, home: Path | None = None) -> Measured:
        settings = {
            "EXTRACTION_BASE_URL": self.standin.url,
            "EXTRACTION_CONCURRENCY": str(CONCURRENCY),
            "GROQ_API_KEY": "bench",
            "PENSTOCK_HOME": str(home or self.folder),
        }
        measured = measure(module, *arguments, environment=self.environment | settings)
        command = f"python -m {module} {' '.join(arguments)}"
        console.print(f"{command}: {measured.seconds:.2f} s, peak {measured.peak_mb:.0f} MB")
        return measured


def race(session: Session, sizes: Sizes) -> list[Figure]:
    documents, latency = sizes.documents, sizes.latency_seconds
    bare, paths = [], []
    for _ in range(sizes.rounds):
        bare.append(session.ask("httpx", documents, latency)[0])
        paths.append(session.process("flow", documents, latency))
    for part, seconds in min(paths, key=lambda one: one.seconds).parts.items():
        console.print(f"  {part}: {seconds:.3f} s")
    return judge_throughput(documents, bare, paths)


def limit(session: Session, sizes: Sizes) -> list[Figure]:
    documents, latency, per_second = (
        sizes.limited_documents,
        sizes.latency_seconds,
        sizes.per_second,
    )
    ours = session.process("flow", documents, latency, per_second)
    sdk, sdk_served = session.ask("sdk", documents, latency, per_second)
    return judge_limit(ours.served, sdk_served, sdk.figures["given_up"], per_second)


def strip(session: Session, sizes: Sizes) -> list[Figure]:
    """Answers that come at once leave only what is ours: tasks and none, few documents and many."""
    direct, flow = [], []
    for _ in range(sizes.rounds):
        direct.append(session.process("direct", sizes.documents, 0))
        flow.append(session.process("flow", sizes.documents, 0))
    many = session.process("flow", sizes.many_documents, 0)
    return [*judge_share(sizes.documents, direct, flow), judge_memory(flow, many)]


def serve(session: Session, sizes: Sizes) -> list[Figure]:
    """Flow runs that the worker of a `penstock up` starts."""
    drained = []
    with penstock_up(session.standin, CONCURRENCY) as place:
        for _ in range(sizes.rounds):
            seed = session.new_seed()
            drained.append(place.drain(sizes.served_documents, sizes.latency_seconds, seed))
            console.print(str(drained[-1]))
    return judge_installation(CONCURRENCY / sizes.latency_seconds, drained)


PARTS: dict[str, Callable[[Session, Sizes], list[Figure]]] = {
    "httpx": race,
    "limit": limit,
    "tasks": strip,
    UP: serve,
}


@contextmanager
def prefect_environment(folder: Path) -> Iterator[dict[str, str]]:
    """A server named in PREFECT_API_URL is used as it is; otherwise one of our own is started."""
    if os.environ.get("PREFECT_API_URL"):
        yield {}
        return
    server = PrefectServer(folder)
    console.print("starting a Prefect server …")
    try:
        yield server.client_environment(server.ensure())
    finally:
        server.stop()


def main() -> int:
    """Run the parts that are named; 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(PARTS)}; none: all")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    add_options(parser)
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    sizes, wanted = QUICK if options.quick else FULL, options.parts or PARTS
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        Standin() as standin,
    ):
        session = Session(Path(folder), standin, dict(os.environ))
        if alone := [part for part in wanted if part != UP]:
            with prefect_environment(session.folder / "server") as prefect:
                session.environment |= prefect
                for part in alone:
                    figures += PARTS[part](session, sizes)
        # After the Prefect server above has ended: an installation has its own.
        if UP in wanted:
            figures += PARTS[UP](session, sizes)
    return report_figures(figures, options)


if __name__ == "__main__":
    sys.exit(main())
