"""A thread with an event loop that listens on a loopback port."""

import asyncio
import threading
from concurrent.futures import Future

from penstock.testing.connection import Connection, Service

# Hundreds of clients may knock in the same instant.
_BACKLOG = 1024


class Listener:
    """Accepts connections until it is closed, and then ends every one of them at once."""

    def __init__(self, service: Service, port: int = 0) -> None:
        """`port`: 0 is any free one."""
        self._service = service
        self._port = port
        self._connections: set[Connection] = set()
        self._started: Future[int] = Future()
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._listen()), name="penstock-groq-server", daemon=True
        )

    def start(self) -> int:
        """The port it listens on."""
        self._thread.start()
        return self._started.result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _listen(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            server = await self._loop.create_server(
                self._accept, "127.0.0.1", self._port, backlog=_BACKLOG
            )
        except OSError as error:
            self._started.set_exception(error)
            return
        self._started.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        for connection in list(self._connections):
            connection.abort()
        await server.wait_closed()

    def _accept(self) -> Connection:
        return Connection(self._service, self._connections)
