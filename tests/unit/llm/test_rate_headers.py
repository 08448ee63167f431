from datetime import UTC, datetime

import pytest

from penstock.llm.ratelimit import HeaderLimit, RateHeaders, read_rate_headers
from penstock.retry import parse_retry_after

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def test_all_six_numbers_are_read() -> None:
    headers = {
        "x-ratelimit-limit-requests": "14400",
        "x-ratelimit-remaining-requests": "14370",
        "x-ratelimit-reset-requests": "2m59.56s",
        "x-ratelimit-limit-tokens": "18000",
        "x-ratelimit-remaining-tokens": "17997",
        "x-ratelimit-reset-tokens": "7.66s",
    }
    assert read_rate_headers(headers) == RateHeaders(
        HeaderLimit(14400, 14370, 179.56), HeaderLimit(18000, 17997, 7.66)
    )


def test_the_casing_of_names_does_not_matter() -> None:
    assert read_rate_headers({"X-RateLimit-Limit-Tokens": "6000"}).tokens.limit == 6000
    assert parse_retry_after({"RETRY-AFTER": "3"}) == 3


def test_headers_without_limits_are_read_as_none() -> None:
    assert read_rate_headers({"content-type": "application/json"}) == RateHeaders()
    assert parse_retry_after({"content-type": "application/json"}) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2m59.56s", 179.56),
        ("7.66s", 7.66),
        ("285ms", 0.285),
        ("1h2m3s", 3723),
        ("1m0s", 60),
        ("1d", 86400),
        ("6", 6),
        ("0s", 0),
        (" 1.5 ", 1.5),
        ("1S", 1),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    read = read_rate_headers({"x-ratelimit-reset-requests": text}).requests.reset_seconds
    assert read == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-3", "-3s", "5x", "1e9", "nan", "inf", "٣", "1s!"])
def test_unreadable_values_are_read_as_none(text: str) -> None:
    headers = {
        "x-ratelimit-reset-tokens": text,
        "x-ratelimit-limit-tokens": text,
        "retry-after": text,
        "retry-after-ms": text,
    }
    assert read_rate_headers(headers) == RateHeaders()
    assert parse_retry_after(headers) is None


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("7", 7), ("0.05", 0.05), ("1m2s", 62)])
def test_the_wait_is_read(text: str, seconds: float) -> None:
    assert parse_retry_after({"retry-after": text}) == pytest.approx(seconds)


def test_the_wait_in_milliseconds_is_the_finer_one() -> None:
    assert parse_retry_after({"retry-after": "1", "retry-after-ms": "285"}) == 0.285


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Mon, 04 May 2026 12:00:30 GMT", 30),
        ("Mon, 04 May 2026 14:00:30 +0200", 30),
        ("Mon, 04 May 2026 12:00:30 -0000", 30),
        ("Mon, 04 May 2026 11:00:00 GMT", 0),
    ],
)
def test_the_wait_may_be_a_date_and_is_never_negative(text: str, seconds: float) -> None:
    assert parse_retry_after({"retry-after": text}, now=NOON) == seconds
