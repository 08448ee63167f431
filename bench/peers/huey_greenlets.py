"""huey with greenlets: the standard library is patched before anything else is imported."""

from gevent import monkey


def run() -> None:
    monkey.patch_all()
    from bench.peers.huey import main
    from bench.queue_assignment import read_assignment

    main(read_assignment())


if __name__ == "__main__":
    run()
