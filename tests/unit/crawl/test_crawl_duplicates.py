from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.crawl.simhash import DuplicateOf, Duplicates

HASH = 0x0123456789ABCDEF


def flip(value: int, *bits: int) -> int:
    for bit in bits:
        value ^= 1 << bit
    return value


def test_the_same_bytes_are_a_duplicate_of_the_first() -> None:
    duplicates = Duplicates()
    assert duplicates.check("a", "h1", None) is None
    assert duplicates.check("b", "h1", None) == DuplicateOf("a", 0)
    assert duplicates.check("c", "h1", HASH) == DuplicateOf("a", 0)


@settings(deadline=None)
@given(st.sets(st.integers(0, 63), max_size=3))
def test_every_near_fingerprint_is_found(bits: set[int]) -> None:
    duplicates = Duplicates()
    duplicates.check("a", "h1", HASH)
    assert duplicates.check("b", "h2", flip(HASH, *bits)) == DuplicateOf("a", len(bits))


def test_four_bits_are_too_far() -> None:
    duplicates = Duplicates()
    duplicates.check("a", "h1", HASH)
    assert duplicates.check("b", "h2", flip(HASH, 0, 1, 2, 3)) is None


def test_the_nearest_is_named() -> None:
    duplicates = Duplicates()
    duplicates.check("far", "h1", flip(HASH, 0, 1, 2))
    duplicates.check("near", "h2", flip(HASH, 60, 61))
    assert duplicates.check("c", "h3", HASH) == DuplicateOf("near", 2)


@pytest.mark.parametrize("empty", [None, 0])
def test_texts_without_words_resemble_nothing(empty: int | None) -> None:
    duplicates = Duplicates()
    duplicates.check("a", "h1", empty)
    assert duplicates.check("b", "h2", empty) is None
    assert duplicates.check("c", "h3", 1) is None


def test_a_document_is_not_its_own_duplicate() -> None:
    duplicates = Duplicates()
    duplicates.check("a", "h1", HASH)
    assert duplicates.check("a", "h1", HASH) is None
    assert duplicates.check("a", "h2", flip(HASH, 5)) is None
    assert duplicates.check("b", "h1", None) is None


def test_the_oldest_is_forgotten_first() -> None:
    duplicates = Duplicates(limit=2)
    for number in range(3):
        duplicates.check(f"d{number}", f"h{number}", HASH << (number * 8) & (2**64 - 1))
    assert duplicates.check("x", "h0", None) is None
    assert duplicates.check("y", "h2", None) == DuplicateOf("d2", 0)


def test_pages_that_share_a_band_are_not_all_compared() -> None:
    """Ten thousand pages of one template would take a minute."""
    duplicates = Duplicates()
    shared = 0xFFFF
    for number in range(10_000):
        # Four words of 16 bits, of which only the lowest is the same for all.
        other = (number * 0x9E3779B97F4A7C15) & (2**64 - 1)
        duplicates.check(f"d{number}", f"h{number}", (other & ~shared) | shared)
    assert sum(1 for _ in duplicates._candidates(shared)) <= 4 * 32


def test_what_a_document_was_before_is_forgotten_when_it_comes_again() -> None:
    duplicates = Duplicates()
    duplicates.check("a", "h1", HASH)
    duplicates.check("b", "h2", flip(HASH, 1, 20, 40, 60))
    assert duplicates.check("b", "h2", flip(HASH, 1, 20, 40, 60)) is None
    assert duplicates.check("c", "h3", flip(HASH, 1, 20, 40)) == DuplicateOf("b", 1)


def test_of_threads_with_the_same_document_one_is_first() -> None:
    duplicates = Duplicates()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: duplicates.check(f"d{n}", "same", HASH), range(200)))
    assert found.count(None) == 1
