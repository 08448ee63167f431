"""`python -m bench.soak`: 20,000 small documents on Postgres, three workers, one killed every few
seconds, for at most five minutes. Says what was lost (nothing) and how long recovery took."""

import argparse
import sys
import tempfile
from pathlib import Path

from penstock.local.postgres import PostgresServer
from tests.faults.scenarios.scene import LEASE_SECONDS, SWEEP_SECONDS, open_scene
from tests.faults.scenarios.soaking import Soaked, soak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--kill-every", type=float, default=4)
    wanted = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder,
        PostgresServer(Path(folder)) as server,
        open_scene(server.create_database("soak")) as scene,
    ):
        found = soak(
            scene,
            documents=wanted.documents,
            seconds=wanted.seconds,
            kill_every=wanted.kill_every,
        )
    for line in describe(found):
        print(line)  # noqa: T201 - this is a command
    sys.exit(1 if found.audit.problems or not found.over else 0)


def describe(found: Soaked) -> list[str]:
    audit = found.audit
    before, after = found.connections
    return [
        f"documents  {audit.documents} in {found.seconds:.0f} s, run over: {found.over}",
        f"kills      {found.kills}",
        f"lost       {audit.lost}",
        f"doubled    {audit.doubled}",
        f"problems   {'; '.join(audit.problems) or 'none'}",
        f"recovered  {found.recovered} items that killed workers held",
        f"taken back p50 {found.detection(0.5):.2f} s, p99 {found.detection(0.99):.2f} s, "
        f"max {found.detection(1.0):.2f} s after the kill",
        f"at work    p50 {found.recovery(0.5):.2f} s, p99 {found.recovery(0.99):.2f} s, "
        f"max {found.recovery(1.0):.2f} s after the kill "
        f"(lease {LEASE_SECONDS:g} s + sweep {SWEEP_SECONDS:g} s)",
        f"memory     {found.memory_growth_mb:+.1f} MB in {found.lived_seconds:.0f} s of the "
        "longest life",
        f"connections {before} after the start, {after} at the end",
    ]


if __name__ == "__main__":
    main()
