"""HTTP/1.1 as far as a chat API needs it: requests read from bytes, responses written to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from penstock.testing.behaviours import Ending

_MAX_HEAD_BYTES = 65_536
_REASONS = {status.value: status.phrase for status in HTTPStatus} | {498: "Capacity Exceeded"}


class MalformedRequest(ValueError):
    """Bytes that are no HTTP request this server can read."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A whole request; header names are lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    keep_alive: bool


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response, and how it travels."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    latency_seconds: float = 0.0
    body_seconds: float = 0.0
    ending: Ending = Ending.WHOLE

    @property
    def is_immediate(self) -> bool:
        return not (self.latency_seconds or self.body_seconds or self.ending is Ending.NEVER)

    @property
    def head(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} {_REASONS.get(self.status, 'Unknown')}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        lines += [f"content-length: {len(self.body)}", "", ""]
        return "\r\n".join(lines).encode("latin-1", "replace")


@dataclass(frozen=True, slots=True)
class _Head:
    method: str
    path: str
    headers: Mapping[str, str]
    keep_alive: bool
    body_bytes: int


class RequestReader:
    """Cuts what one connection sends into requests."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: _Head | None = None

    def feed(self, data: bytes) -> bool:
        """Take bytes in. Whether the client waits for a nod before it sends its body."""
        self._buffer += data
        if self._head is not None:
            return False
        self._head = self._cut_head()
        return self._head is not None and "expect" in self._head.headers

    def next_request(self) -> HttpRequest | None:
        """The next whole request, if it is there."""
        self._head = head = self._head or self._cut_head()
        if head is None or len(self._buffer) < head.body_bytes:
            return None
        body = bytes(self._buffer[: head.body_bytes])
        del self._buffer[: head.body_bytes]
        self._head = None
        return HttpRequest(head.method, head.path, head.headers, body, head.keep_alive)

    def _cut_head(self) -> _Head | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEAD_BYTES:
                raise MalformedRequest("the request's headers have no end")
            return None
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        return _parse_head(lines)


def _parse_head(lines: list[str]) -> _Head:
    method, _, rest = lines[0].partition(" ")
    target, _, version = rest.partition(" ")
    pairs = (line.partition(":") for line in lines[1:])
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    length = headers.get("content-length", "0")
    if not version.startswith("HTTP/1.") or not length.isdecimal():
        raise MalformedRequest("no HTTP/1.1 request line, or no number as Content-Length")
    if "transfer-encoding" in headers:
        raise MalformedRequest("send the body with a Content-Length, not in chunks")
    keep_alive = version != "HTTP/1.0" and headers.get("connection", "").lower() != "close"
    return _Head(method, target.partition("?")[0], headers, keep_alive, int(length))
