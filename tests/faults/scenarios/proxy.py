"""Stands between a client and Redis: slow, hanging or broken, as wanted."""

import socket
import threading
import time
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    """Listens on a port of its own and passes on to whatever server it is given."""

    def __init__(self, target: str) -> None:
        self.delay_seconds = 0.0
        self.hangs = threading.Event()
        self.turn_to(target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def turn_to(self, target: str) -> None:
        port = urlsplit(target).port
        assert port is not None
        self._target = ("127.0.0.1", port)

    def cut(self) -> None:
        """Break every connection there is."""
        for one in list(self._sockets):
            self._close(one)

    def close(self) -> None:
        """Nobody is there any more."""
        with suppress(OSError):
            # Or the thread that waits in `accept` would take one more.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            self._sockets |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                time.sleep(self.delay_seconds / 2)
                while self.hangs.is_set():
                    time.sleep(0.01)
                sink.sendall(data)
        self._close(source)
        self._close(sink)

    def _close(self, one: socket.socket) -> None:
        self._sockets.discard(one)
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
