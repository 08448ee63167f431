"""A worker process that has imported everything and begins at a line on its standard input.

`penstock worker` itself, without the seconds that importing takes on a busy machine. A first
argument other than 0 is how many seconds its clock is wrong.
"""

import logging
import sys
import time

import penstock.worker  # noqa: F401 - imported early, so that it is there when work begins
from entrypoints.cli import worker
from entrypoints.cli.main import main


def work(skew_seconds: float, *arguments: str) -> None:
    sys.argv = ["penstock", "worker", *arguments]
    # Often, so that whatever happens also happens to the thread that says how it goes.
    worker.LINE_SECONDS = 0.5
    # Prefect's, which has been imported in the process that this one is a fork of.
    logging.root.handlers.clear()
    if not skew_seconds:
        main()
        return
    import time_machine

    with time_machine.travel(time.time() + skew_seconds, tick=True):
        main()


if __name__ == "__main__":
    sys.stdin.readline()
    work(float(sys.argv[1]), *sys.argv[2:])
