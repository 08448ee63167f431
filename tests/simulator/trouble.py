"""Ways in which a web server can misbehave."""

import struct
import zlib
from dataclasses import dataclass
from typing import Protocol

from tests.simulator.visit import Answer, Visit

PRIVATE_ADDRESSES = ("http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/")
"""Where no redirect may lead: a cloud's secrets, somebody's network."""

_PLAIN = {"Content-Type": "text/plain"}
_HTML = {"Content-Type": "text/html; charset=utf-8"}
_PIECE_BYTES = 1 << 16
_MIB = 1 << 20


class Trouble(Protocol):
    """Answers instead of the site."""

    def play(self, visit: Visit) -> None: ...


@dataclass(frozen=True)
class Status:
    """Another status than the page would have; 429 and 503 may say when to come back."""

    code: int
    retry_after: int | str | None = None

    def play(self, visit: Visit) -> None:
        wait = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        visit.send_answer(Answer(self.code, b"Trouble.\n", {**_PLAIN, **wait}))


@dataclass(frozen=True)
class Stall:
    """Takes the request and never answers; or sends the head and so much of the body, no more."""

    after_bytes: int | None = None

    def play(self, visit: Visit) -> None:
        if self.after_bytes is not None:
            visit.send_head(visit.answer, len(visit.answer.body))
            visit.send_body(visit.answer.body[: self.after_bytes])
        visit.outwait_client()


@dataclass(frozen=True)
class Drip:
    """The page, byte after byte, so slowly that it takes for ever."""

    pause_seconds: float = 0.05

    def play(self, visit: Visit) -> None:
        visit.send_head(visit.answer, len(visit.answer.body))
        for start in range(len(visit.answer.body)):
            visit.send_body(visit.answer.body[start : start + 1])
            visit.pause(self.pause_seconds)


@dataclass(frozen=True)
class Slow:
    """The page, after a while."""

    seconds: float

    def play(self, visit: Visit) -> None:
        visit.pause(self.seconds)
        visit.send_answer()


@dataclass(frozen=True)
class WrongLength:
    """The page, with a Content-Length that says so many bytes more, or fewer, than there are."""

    by: int

    def play(self, visit: Visit) -> None:
        visit.send_head(visit.answer, max(0, len(visit.answer.body) + self.by))
        visit.send_body(visit.answer.body)
        visit.ends_connection = self.by > 0


@dataclass(frozen=True)
class Endless:
    """A gigabyte that does not say how long it is."""

    total_bytes: int = 1 << 30

    def play(self, visit: Visit) -> None:
        visit.send_head(Answer(headers=_HTML), None)
        for _ in range(self.total_bytes // _PIECE_BYTES):
            visit.send_body(b"x" * _PIECE_BYTES)


@dataclass(frozen=True)
class EndlessHeaders:
    """A gigabyte of headers, before there is any body."""

    total_bytes: int = 1 << 30

    def play(self, visit: Visit) -> None:
        visit.ends_connection = True
        visit.send_raw(b"HTTP/1.1 200 OK\r\n")
        for number in range(self.total_bytes // _PIECE_BYTES):
            visit.send_raw(b"X-%d: " % number + b"x" * _PIECE_BYTES + b"\r\n")


@dataclass(frozen=True)
class Redirect:
    """Sends elsewhere; a path stays on the site."""

    to: str
    status: int = 302

    def play(self, visit: Visit) -> None:
        visit.send_answer(Answer(self.status, headers={"Location": self.to}))


@dataclass(frozen=True)
class RedirectLoop:
    """Sends to itself."""

    def play(self, visit: Visit) -> None:
        Redirect(visit.request.path).play(visit)


@dataclass(frozen=True)
class Reset:
    """Breaks the connection off before any answer."""

    def play(self, visit: Visit) -> None:
        visit.reset()


@dataclass(frozen=True)
class GzipBomb:
    """A thousandth of what it becomes when it is unpacked."""

    unpacked_bytes: int = 1 << 30

    def play(self, visit: Visit) -> None:
        packed = _gzip_zeros(self.unpacked_bytes // _MIB)
        visit.send_answer(Answer(200, packed, {**_HTML, "Content-Encoding": "gzip"}))


@dataclass(frozen=True)
class Empty:
    """Status 200, HTML, and nothing in it."""

    def play(self, visit: Visit) -> None:
        visit.send_answer(Answer(headers=_HTML))


def _gzip_zeros(mebibytes: int) -> bytes:
    """One block of deflate again and again, which is quicker than compressing it all."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(bytes(_MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = 0
    for _ in range(mebibytes):
        checksum = zlib.crc32(bytes(_MIB), checksum)
    head = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    last_block, size = b"\x03\x00", mebibytes * _MIB % (1 << 32)
    return head + block * mebibytes + last_block + struct.pack("<II", checksum, size)
