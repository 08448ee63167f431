import gzip
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import brotli  # type: ignore[import-untyped]
import pytest

from penstock.crawl.fetch import Fetcher
from penstock.crawl.http import CODINGS, CompressionError
from penstock.errors import DocumentFault, ErrorClass
from tests.simulator import GzipBomb, Site

from .conftest import MakeFetcher
from .scripted import Reply, ScriptedServer

pytestmark = pytest.mark.full_suite

TEXT = b"".join(b"line %d of a page\n" % number for number in range(20_000))
PACKED = {"gzip": gzip.compress(TEXT), "br": brotli.compress(TEXT, quality=4)}
MIB = 1 << 20


def fault_of(fetcher: Fetcher, url: str) -> DocumentFault:
    with pytest.raises(DocumentFault) as caught:
        fetcher.get(url)
    return caught.value


def packed_page(server: ScriptedServer, body: bytes, coding: str) -> str:
    headers = {"Content-Type": "text/html", "Content-Encoding": coding}
    return server.reply("/a", Reply(body=body, headers=headers))


@contextmanager
def at_most(mebibytes: int, seconds: float) -> Iterator[None]:
    """Neither more memory nor more time than this."""
    begun = time.monotonic()
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < mebibytes * MIB
    assert time.monotonic() - begun < seconds


def test_only_what_can_be_unpacked_within_bounds_is_offered(
    server: ScriptedServer, fetcher: Fetcher
) -> None:
    fetcher.get(server.page("/a", "x"))
    assert server.asked[-1].headers["accept-encoding"] == "gzip, br"


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP", "br"])
def test_a_packed_page_is_unpacked(server: ScriptedServer, fetcher: Fetcher, coding: str) -> None:
    body = PACKED.get(coding, PACKED["gzip"])
    assert fetcher.get(packed_page(server, body, coding)).content == TEXT


@pytest.mark.parametrize("coding", ["gzip", "br"])
@pytest.mark.parametrize("chunk_bytes", [1, 7, 1000, 1 << 20])
def test_pieces_are_small_however_the_bytes_arrive(coding: str, chunk_bytes: int) -> None:
    packed = PACKED[coding]
    starts = range(0, len(packed), chunk_bytes)
    pieces = list(CODINGS[coding](packed[start : start + chunk_bytes] for start in starts))
    assert b"".join(pieces) == TEXT
    assert max(map(len, pieces)) < 2 << 16


def test_gzip_may_have_several_members(server: ScriptedServer, fetcher: Fetcher) -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two") + bytes(100)
    assert fetcher.get(packed_page(server, packed, "gzip")).content == b"one two"


def test_a_gzip_bomb_stays_within_bounds(site: Site, make_fetcher: MakeFetcher) -> None:
    url = site.page("/jobs/1", "Sluice keeper")
    fetcher = make_fetcher(max_bytes=4 * MIB)
    site.trouble("/jobs/1", GzipBomb())
    with at_most(mebibytes=30, seconds=10):
        fault = fault_of(fetcher, url)
    assert fault.kind is ErrorClass.TOO_LARGE


def test_a_brotli_bomb_stays_within_bounds(
    server: ScriptedServer, make_fetcher: MakeFetcher
) -> None:
    bomb = brotli.compress(bytes(512 * MIB), quality=3)
    assert len(bomb) < 1000
    url = packed_page(server, bomb, "br")
    fetcher = make_fetcher(max_bytes=4 * MIB)
    with at_most(mebibytes=20, seconds=10):
        fault = fault_of(fetcher, url)
    assert fault.kind is ErrorClass.TOO_LARGE


@pytest.mark.parametrize("coding", ["gzip", "br"])
def test_a_body_at_the_cap_is_accepted_and_one_byte_more_is_not(
    server: ScriptedServer, make_fetcher: MakeFetcher, coding: str
) -> None:
    url = packed_page(server, PACKED[coding], coding)
    assert make_fetcher(max_bytes=len(TEXT)).get(url).content == TEXT
    assert fault_of(make_fetcher(max_bytes=len(TEXT) - 1), url).kind is ErrorClass.TOO_LARGE


def test_a_long_body_that_unpacks_to_nothing_stops_at_the_cap(
    server: ScriptedServer, make_fetcher: MakeFetcher
) -> None:
    headers = {"Content-Encoding": "gzip"}
    nothing = gzip.compress(b"") * 50_000
    url = server.reply("/a", Reply(body=nothing, headers=headers, length=-1))
    assert fault_of(make_fetcher(max_bytes=100_000), url).kind is ErrorClass.TOO_LARGE


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b"not gzip"),
        ("gzip", PACKED["gzip"][:-4]),
        ("gzip", PACKED["gzip"][:2000] + b"?" * 20 + PACKED["gzip"][2020:]),
        ("br", b"not brotli at all"),
        ("br", PACKED["br"][:-4]),
        ("br", PACKED["br"][:2000] + b"?" * 20 + PACKED["br"][2020:]),
        ("br", PACKED["br"] + b"and more"),
    ],
)
def test_a_damaged_body_is_a_failed_transfer(
    server: ScriptedServer, fetcher: Fetcher, coding: str, body: bytes
) -> None:
    fault = fault_of(fetcher, packed_page(server, body, coding))
    assert fault.kind is ErrorClass.UNAVAILABLE
    assert len(server.requests_for("/a")) == 3


@pytest.mark.parametrize("coding", ["gzip", "br"])
def test_nothing_at_all_unpacks_to_nothing(coding: str) -> None:
    assert b"".join(CODINGS[coding]([b"", b""])) == b""


def test_brotli_that_goes_on_in_a_later_chunk_is_damaged() -> None:
    with pytest.raises(CompressionError):
        list(CODINGS["br"]([PACKED["br"], b"x"]))


@pytest.mark.parametrize("coding", ["zstd", "deflate", "compress", "gzip, gzip"])
def test_a_coding_that_was_not_offered_is_unsupported(
    server: ScriptedServer, fetcher: Fetcher, coding: str
) -> None:
    fault = fault_of(fetcher, packed_page(server, b"x", coding))
    assert fault.kind is ErrorClass.UNSUPPORTED
    assert "gzip, br" in str(fault)
