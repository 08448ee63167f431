"""One request while it is being answered: what the site, or a trouble, may do with it."""

import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus


@dataclass(frozen=True)
class Answer:
    """What a well-behaved server would send."""

    status: int = 200
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Request:
    """What was asked, when, and what became of it."""

    path: str
    query: str
    headers: Mapping[str, str]
    """Names in lower case."""
    at_once: int
    """How many requests were under way at that moment, with this one."""
    connection: int
    """The client's port: requests that share it came over one connection."""
    at: float = field(default_factory=time.monotonic)
    sent_bytes: int = 0
    """Of the body."""
    is_over: bool = False


class Visit:
    """A connection, at the point where an answer is due. Raises OSError when the client left."""

    def __init__(
        self,
        request: Request,
        answer: Answer,
        connection: socket.socket,
        stopping: threading.Event,
    ) -> None:
        self.request = request
        self.answer = answer
        self.ends_connection = False
        self._connection = connection
        self._stopping = stopping

    def send_answer(self, answer: Answer | None = None) -> None:
        """The whole of an answer; the ordinary one unless another is given."""
        answer = answer or self.answer
        self.send_head(answer, len(answer.body))
        self.send_body(answer.body)

    def send_head(self, answer: Answer, length: int | None) -> None:
        """Without a length, the body ends where the connection does."""
        known = {status.value: status.phrase for status in HTTPStatus}
        lines = [f"HTTP/1.1 {answer.status} {known.get(answer.status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        if length is None:
            lines.append("Connection: close")
            self.ends_connection = True
        elif answer.status != HTTPStatus.NOT_MODIFIED:
            lines.append(f"Content-Length: {length}")
        self.send_raw("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def send_body(self, data: bytes) -> None:
        self.send_raw(data)
        self.request.sent_bytes += len(data)

    def send_raw(self, data: bytes) -> None:
        self._connection.sendall(data)

    def pause(self, seconds: float) -> None:
        """Do nothing for a while, or until the site is stopped."""
        if self._stopping.wait(seconds):
            raise ConnectionAbortedError

    def outwait_client(self) -> None:
        """Do nothing until the client leaves, or the site is stopped."""
        self.ends_connection = True
        while self._connection.recv(1024):
            pass

    def reset(self) -> None:
        """Break the connection off, so that the client sees an error and not an end."""
        self.ends_connection = True
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()
