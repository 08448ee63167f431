"""Gzip unpacked with a limit, so that a small answer cannot become a huge document."""

import zlib
from collections.abc import Iterable, Iterator

_PIECE_BYTES = 1 << 16
_GZIP_WRAPPER = 16 + zlib.MAX_WBITS

GZIP_MAGIC = b"\x1f\x8b"


class GzipError(Exception):
    """The bytes are not gzip, or end too early."""


def gunzip_pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack in pieces of bounded size, so that the reader can stop at its own limit."""
    member, started = zlib.decompressobj(_GZIP_WRAPPER), False
    for chunk in chunks:
        while chunk:
            if member.eof:
                # A file may hold several members; padding after the last one is not a member.
                if not chunk.startswith(GZIP_MAGIC[:1]):
                    return
                member = zlib.decompressobj(_GZIP_WRAPPER)
            started = True
            yield _unpack(member, chunk)
            chunk = member.unused_data if member.eof else member.unconsumed_tail
    if started and not member.eof:
        raise GzipError("it ends too early")


def _unpack(member: "zlib._Decompress", chunk: bytes) -> bytes:
    try:
        return member.decompress(chunk, _PIECE_BYTES)
    except zlib.error as error:
        raise GzipError(str(error)) from error
