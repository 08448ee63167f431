"""One client's connection: its requests answered one after the other, each as it is told."""

import asyncio
from typing import Protocol, cast

from penstock.testing.behaviours import Ending
from penstock.testing.wire import HttpRequest, HttpResponse, MalformedRequest, RequestReader

_DRIBBLES = 20


class Service(Protocol):
    """What stands behind the connections."""

    def respond(self, request: HttpRequest) -> HttpResponse:
        """The response to give. It is called on the server's thread and does not wait."""

    def begin(self) -> None:
        """A request is complete."""

    def end(self) -> None:
        """Its answer is sent, or nobody waits for it any more."""


class Connection(asyncio.Protocol):
    """Bytes in, bytes out. Only an answer that takes time costs a task."""

    def __init__(self, service: Service, peers: set["Connection"]) -> None:
        self._service = service
        self._peers = peers
        self._reader = RequestReader()
        self._delivery: asyncio.Task[None] | None = None
        self._under_way = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._peers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._peers.discard(self)
        if self._delivery is not None:
            self._delivery.cancel()

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._advance(data)

    def _advance(self, data: bytes = b"") -> None:
        try:
            if self._reader.feed(data):
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._answer_next()
        except MalformedRequest as error:
            self._refuse(str(error))

    def _answer_next(self) -> None:
        while self._delivery is None and not self._transport.is_closing():
            request = self._reader.next_request()
            if request is None:
                return
            self._answer(request)

    def _answer(self, request: HttpRequest) -> None:
        self._under_way = True
        self._service.begin()
        response = self._service.respond(request)
        if response.is_immediate:
            self._send(response)
            self._finish(request)
            return
        task = asyncio.get_running_loop().create_task(self._deliver(response))
        task.add_done_callback(lambda _: self._finish_delivery(request))
        self._delivery = task

    def _finish_delivery(self, request: HttpRequest) -> None:
        self._delivery = None
        self._finish(request)
        self._advance()

    def _finish(self, request: HttpRequest) -> None:
        self._end()
        if not request.keep_alive:
            self._transport.close()

    def _end(self) -> None:
        """Told before the last bytes go: who has the answer must not count as waiting for it."""
        if self._under_way:
            self._under_way = False
            self._service.end()

    async def _deliver(self, response: HttpResponse) -> None:
        await asyncio.sleep(response.latency_seconds)
        if response.ending is Ending.NEVER:
            await asyncio.Event().wait()
        elif response.body_seconds:
            await self._dribble(response)
        else:
            self._send(response)

    async def _dribble(self, response: HttpResponse) -> None:
        self._transport.write(response.head)
        sent = _sent_body(response)
        size = max(1, -(-len(sent) // _DRIBBLES))
        pieces = [sent[start : start + size] for start in range(0, len(sent), size)]
        for piece in pieces[:-1]:
            self._transport.write(piece)
            await asyncio.sleep(response.body_seconds / (len(pieces) - 1))
        self._end()
        self._transport.write(b"".join(pieces[-1:]))
        if response.ending is not Ending.WHOLE:
            self._transport.close()

    def _send(self, response: HttpResponse) -> None:
        self._end()
        if response.ending is not Ending.UNSENT:
            self._transport.write(response.head + _sent_body(response))
        if response.ending is not Ending.WHOLE:
            self._transport.close()

    def _refuse(self, reason: str) -> None:
        self._send(HttpResponse(400, (("content-type", "text/plain"),), reason.encode()))
        self._transport.close()


def _sent_body(response: HttpResponse) -> bytes:
    half = len(response.body) // 2
    return response.body[:half] if response.ending is Ending.MIDWAY else response.body
