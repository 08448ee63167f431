import time

import groq
import pytest
from groq import Groq

from penstock.testing import GroqServer
from penstock.testing.groq_server import Bucket, Limits, format_duration

from .conftest import Ask


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_fills_steadily_and_never_over_its_rim() -> None:
    clock = Clock()
    bucket = Bucket(per_second=2, capacity=4, clock=clock)
    bucket.spend(4)
    assert bucket.wait_seconds(1) == 0.5
    clock.now += 0.5
    assert bucket.wait_seconds(1) == 0
    assert bucket.full_in_seconds == 1.5
    clock.now += 60
    assert bucket.level == 4


def test_what_was_spent_unasked_is_waited_for() -> None:
    limits = Limits()
    limits.tokens = Bucket(per_second=10, capacity=100, clock=Clock())
    assert limits.refuse(100) is None
    limits.charge_tokens(50)
    assert limits.tokens.wait_seconds(10) == 6
    assert dict(limits.headers)["x-ratelimit-remaining-tokens"] == "0"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.2841, "285ms"),
        (7.66, "7.66s"),
        (60, "1m0s"),
        (179.56, "2m59.56s"),
        (3605, "1h0m5s"),
    ],
)
def test_durations_are_written_as_groq_writes_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_requests_over_the_limit_get_a_retry_after(server: GroqServer, ask: Ask) -> None:
    ask()
    server.limit_requests(per_second=1, burst=2)
    ask()
    ask()
    with pytest.raises(groq.RateLimitError) as caught:
        ask()
    headers = caught.value.response.headers
    assert 0 < float(headers["retry-after"]) <= 1
    assert headers["x-ratelimit-limit-requests"] == "2"
    assert headers["x-ratelimit-remaining-requests"] == "0"
    time.sleep(float(headers["retry-after"]))
    assert ask().choices


def test_a_refused_request_uses_up_nothing_of_the_script(server: GroqServer, ask: Ask) -> None:
    server.limit_requests(per_second=0.01, burst=1)
    server.script("small", ["one", "two"])
    ask()
    with pytest.raises(groq.RateLimitError):
        ask()
    server.limit_requests(per_second=100)
    assert ask().choices[0].message.content == "two"


def test_tokens_over_the_limit_are_refused_and_too_many_at_once_for_good(
    server: GroqServer, ask: Ask
) -> None:
    server.always("small", "x" * 40)
    server.limit_tokens(per_minute=60)
    ask("y" * 160)
    with pytest.raises(groq.RateLimitError, match="tokens per minute") as caught:
        ask("y" * 120)
    # 60 - 40 asked - 10 answered leaves 10 of 30, and one comes every second.
    assert 18 < float(caught.value.response.headers["retry-after"]) <= 20
    with pytest.raises(groq.APIStatusError) as refused:
        ask("y" * 244)
    assert refused.value.status_code == 413


def test_every_answer_has_the_remaining_limits(server: GroqServer, client: Groq) -> None:
    server.limit_tokens(per_minute=6000)
    raw = client.chat.completions.with_raw_response.create(
        model="small", messages=[{"role": "user", "content": "x" * 400}]
    )
    assert raw.headers["x-ratelimit-limit-tokens"] == "6000"
    assert 5850 < int(raw.headers["x-ratelimit-remaining-tokens"]) <= 5900
    assert raw.headers["x-ratelimit-reset-tokens"].endswith("s")
    assert int(raw.headers["x-ratelimit-remaining-requests"]) > 1_000_000
