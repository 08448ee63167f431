"""Gzip and Brotli unpacked with a limit, so that a small answer cannot become a huge document."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping

_PIECE_BYTES = 1 << 16
_GZIP_WRAPPER = 16 + zlib.MAX_WBITS

GZIP_MAGIC = b"\x1f\x8b"


class CompressionError(Exception):
    """The bytes are not what they are said to be, or end too early."""


class GzipError(CompressionError):
    """The same, said of gzip."""


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


def gunzip_whole(content: bytes, max_bytes: int) -> bytes:
    """The content unpacked if it is gzip, as it is if it is not; no more than so many bytes."""
    if not content.startswith(GZIP_MAGIC):
        return content
    unpacked = bytearray()
    for piece in gunzip_pieces([content]):
        unpacked += piece
        if len(unpacked) > max_bytes:
            raise CompressionError(f"it unpacks to more than {max_bytes} bytes")
    return bytes(unpacked)


def unbrotli_pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same for Brotli (RFC 7932), which knows neither members nor padding.

    The limit is a soft one: a piece may be half as large again.
    """
    import brotli  # type: ignore[import-untyped]

    stream, started = brotli.Decompressor(), False
    try:
        for chunk in filter(None, chunks):
            started = True
            # `can_accept_more_data` tells of input that waits, but not of output that does.
            while piece := stream.process(chunk, output_buffer_limit=_PIECE_BYTES):
                yield piece
                if stream.is_finished():
                    break
                chunk = b""
    except brotli.error as error:
        raise CompressionError(str(error)) from error
    if started and not stream.is_finished():
        raise CompressionError("it ends too early")


OFFERED = "gzip, br"
CODINGS: Mapping[str, Callable[[Iterable[bytes]], Iterator[bytes]]] = {
    "gzip": gunzip_pieces,
    # RFC 9110, 8.4.1.3: the old name of the same.
    "x-gzip": gunzip_pieces,
    "br": unbrotli_pieces,
}
"""The content codings that can be unpacked."""


def _unpack(member: "zlib._Decompress", chunk: bytes) -> bytes:
    try:
        return member.decompress(chunk, _PIECE_BYTES)
    except zlib.error as error:
        raise GzipError(str(error)) from error
