"""TCP ports on the loopback address."""

import socket

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A port nobody listens on right now; it may be taken before it is used."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
        return False


def answers_ok(port: int, path: str, timeout_seconds: float) -> bool:
    """Whether an HTTP server on this port answers 200 to a GET.

    Spoken by hand: no proxy setting of the caller gets in between, and the command line is
    spared the import of an HTTP client.
    """
    request = f"GET {path} HTTP/1.0\r\nHost: {LOOPBACK}\r\n\r\n".encode()
    try:
        with socket.create_connection((LOOPBACK, port), timeout_seconds) as connection:
            connection.sendall(request)
            return connection.recv(16).split(b" ")[1:2] == [b"200"]
    except OSError:
        return False
