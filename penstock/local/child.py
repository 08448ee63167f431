"""Runs a server's Python module in this process, which ends when its supervisor is gone.

Usage: python -m penstock.local.child MODULE_OR_SCRIPT ARGUMENTS…, with a pipe from the
supervisor as standard input.
"""

import os
import runpy
import signal
import sys
import threading
import time

# Prefect's server asks the first for its catalogue of blocks and workers (and has a copy to fall
# back on); the others take usage statistics. A local server keeps to its machine.
REFUSED_HOSTS = ("raw.githubusercontent.com", "sens-o-matic.prefect.io", "api2.amplitude.com")

_GRACE_SECONDS = 10


def main() -> None:
    _end_with_supervisor()
    _refuse_hosts()
    target, sys.argv = sys.argv[1], sys.argv[1:]
    if target.endswith(".py"):
        runpy.run_path(target, run_name="__main__")
    else:
        runpy.run_module(target, run_name="__main__", alter_sys=True)


def _end_with_supervisor() -> None:
    """The pipe's other end closes with the supervisor, however that ends, on every system."""
    lifeline = os.dup(sys.stdin.fileno())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)
    threading.Thread(target=_watch, args=(lifeline,), daemon=True, name="lifeline").start()


def _watch(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(1)


def _refuse_hosts() -> None:
    past_proxies = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    os.environ["no_proxy"] = ",".join(filter(None, (past_proxies, *REFUSED_HOSTS)))
    sys.addaudithook(_refuse_lookup)


def _refuse_lookup(event: str, arguments: tuple[object, ...]) -> None:
    if event == "socket.getaddrinfo" and _text(arguments[0]) in REFUSED_HOSTS:
        raise OSError(f"{_text(arguments[0])} is blocked for a local server")


def _text(host: object) -> str:
    return host.decode("idna") if isinstance(host, bytes) else str(host)


if __name__ == "__main__":
    main()
