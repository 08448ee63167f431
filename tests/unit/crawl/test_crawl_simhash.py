import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.crawl import simhash as module
from penstock.crawl.simhash import distance, from_signed, simhash, to_signed, visible_text

FINGERPRINTS = st.integers(min_value=0, max_value=2**64 - 1)
LONG = [f"word{number * 7919 % 1009}" for number in range(1500)]


@settings(deadline=None)
@given(st.text())
def test_a_fingerprint_has_64_bits_and_is_repeatable(text: str) -> None:
    assert 0 <= simhash(text) < 2**64
    assert simhash(text) == simhash(text)


@settings(deadline=None)
@given(st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), max_size=30))
def test_case_and_white_space_do_not_matter(words: list[str]) -> None:
    shouted = " \n\t\u00a0".join(words).upper()
    assert simhash(shouted) == simhash(" ".join(words))


@settings(deadline=None)
@given(FINGERPRINTS, FINGERPRINTS, FINGERPRINTS)
def test_distance_is_a_metric(a: int, b: int, c: int) -> None:
    assert distance(a, a) == 0
    assert distance(a, b) == distance(b, a)
    assert distance(a, c) <= distance(a, b) + distance(b, c)


@settings(deadline=None)
@given(FINGERPRINTS)
def test_signed_columns_hold_every_fingerprint(value: int) -> None:
    assert -(2**63) <= to_signed(value) < 2**63
    assert from_signed(to_signed(value)) == value


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=len(LONG) - 1))
def test_one_changed_word_in_a_long_text_moves_few_bits(position: int) -> None:
    changed = [*LONG[:position], "surprise", *LONG[position + 1 :]]
    assert distance(simhash(" ".join(LONG)), simhash(" ".join(changed))) <= 8


def test_different_texts_are_far_apart() -> None:
    other = " ".join(f"term{number}" for number in range(1500))
    assert distance(simhash(" ".join(LONG)), simhash(other)) > 15


def test_the_order_of_words_matters() -> None:
    assert simhash("a b c d e f") != simhash("f e d c b a")


def test_a_text_without_words_is_zero() -> None:
    assert simhash("") == simhash(" \n") == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("one", 2297215216551843628),
        ("one two", 17959095071656282119),
        ("the quick brown fox jumps over the lazy dog", 17968248080209364424),
    ],
)
def test_stored_fingerprints_stay_valid(text: str, value: int) -> None:
    assert simhash(text) == value


def test_a_text_worked_on_in_pieces_has_the_same_fingerprint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = " ".join(["abcd"] * 2 + LONG)
    whole = simhash(text)
    assert simhash(text) == whole
    monkeypatch.setattr(module, "_PIECE_CHARACTERS", 2500)
    assert distance(simhash(text), whole) <= 8


def test_lone_surrogates_are_hashed() -> None:
    assert simhash("a \udce9 b") != 0


def test_visible_text_leaves_the_furniture_out() -> None:
    html = b"""<html><head><title>T</title><style>s{}</style></head><body>
      <header>Head</header><nav>Menu</nav><main>Hello <b>big</b>
      world<script>x()</script><noscript>no</noscript><template>t</template></main>
      <footer>Foot</footer></body></html>"""
    assert visible_text(html).split() == ["Hello", "big", "world"]


@pytest.mark.parametrize("html", [b"", b"\xff\xfe\x00", b"<", b"plain words"])
def test_visible_text_takes_anything(html: bytes) -> None:
    assert isinstance(visible_text(html), str)


@pytest.mark.parametrize(
    "html",
    [
        b"<div>" * 100_000 + b"words" + b"</div>" * 100_000,
        b"<p>words <a " + b" ".join(b"a%d=1" % number for number in range(100_000)) + b">",
        b"<" * 1_000_000,
    ],
    ids=["nested", "attributes", "brackets"],
)
def test_a_page_that_would_take_the_parser_too_long_has_no_visible_text(html: bytes) -> None:
    started = time.monotonic()
    assert visible_text(html) == ""
    assert time.monotonic() - started < 20


def test_a_page_with_a_long_script_is_read() -> None:
    html = b"<body><script>" + b"x = 1; " * 100_000 + b"</script><p>Hello world</p></body>"
    assert visible_text(html) == "Hello world"
