"""The rate limit of model calls within one process, learnt from headers and refusals.

A call starts when its time slot has come and both buckets, requests and tokens, hold enough.

Buckets mirror the server's. Headers give their size, their level and, as used / time until full,
their flow. They are only ever corrected downwards, since a header is older than the calls that
started after it. No headers, no buckets.

Time slots are learnt from refusals (429), with or without headers. Until the first one they are
always open. A refusal closes them for as long as the server said. From then on they are evenly
spaced, a little wider than the calls that were accepted since the refusal before, and while calls
wait for them they come slowly closer, until the next refusal: quicker while the pace was learnt
from few calls. Refusals of calls that had started before the last change belong to that change.
When the very first call after it is refused, the server is closed rather than slow: it is undone.

`penstock/redis/lua/allowance.lua` holds the same arithmetic for processes that share a limit.
"""

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.errors import Interrupted
from penstock.retry import parse_duration, parse_number


class HeaderLimit(NamedTuple):
    """One limit in the headers of an answer; None where a header is missing."""

    limit: int | None = None
    remaining: int | None = None
    reset_seconds: float | None = None


class RateHeaders(NamedTuple):
    """Both limits in the headers of one answer."""

    requests: HeaderLimit = HeaderLimit()
    tokens: HeaderLimit = HeaderLimit()


def read_rate_headers(headers: Mapping[str, str]) -> RateHeaders:
    """The `x-ratelimit-*` headers; what is missing or unreadable is None."""
    values = {name.lower(): value for name, value in headers.items()}

    def count(name: str) -> int | None:
        number = parse_number(values.get(f"x-ratelimit-{name}"))
        return None if number is None or math.isinf(number) else int(number)

    def read(unit: str) -> HeaderLimit:
        reset_seconds = parse_duration(values.get(f"x-ratelimit-reset-{unit}"))
        return HeaderLimit(count(f"limit-{unit}"), count(f"remaining-{unit}"), reset_seconds)

    return RateHeaders(read("requests"), read("tokens"))


# Shorter waits are rounding errors.
TOLERANCE_SECONDS = 1e-6
# A bucket's flow is taken from the last ten answers or so, since levels come as whole numbers.
FLOW_MEMORY = 0.9
# Fewer calls between two refusals say little about the allowed pace.
SURE_CALLS = 16
BACK_OFF_SURE = 0.92
BACK_OFF_UNSURE = 0.7
# The first calls used up the server's burst, so they seem quicker than allowed.
BACK_OFF_FIRST = 0.6
DEEPEST_CUT = 0.25
# Too quick is soon corrected by the next refusal, too slow only slowly.
FIRST_PER_SECOND = 5.0
# Raised by 1 % a second, yet never by more than 0.2 % a call: each refusal costs one.
RISE_PER_SECOND = 0.01
RISE_PER_CALL = 0.002
HASTE_UNSURE = 10
# Calls further back count half, again and again.
MEMORY_CALLS = 256
IDLE_SECONDS = 1.0
FIRST_SECONDS = 1.0


class Grant(NamedTuple):
    """One call that may start: when, its size, and the totals of all calls until then."""

    at: float
    tokens: int
    starts: int
    spent: int


@dataclass(slots=True)
class HeaderBucket:
    """One limit, as learnt from headers. Without a flow it is unknown and limits nothing."""

    capacity: float = 0.0
    level: float = 0.0
    at: float = 0.0
    used: float = 0.0
    reset: float = 0.0

    @property
    def flow(self) -> float:
        return self.used / self.reset if self.reset else 0.0

    def wait_seconds(self, now: float, amount: float) -> float:
        if not self.flow:
            return 0.0
        self._fill(now)
        return (min(amount, self.capacity) - self.level) / self.flow

    def take(self, amount: float) -> None:
        """A negative amount gives back."""
        self.level = min(self.capacity, self.level - amount)

    def correct(
        self, now: float, headers: HeaderLimit, *, age_seconds: float, taken_since: float
    ) -> None:
        """Apply what the server had left `age_seconds` ago, before `taken_since` was taken."""
        limit, remaining, reset_seconds = headers
        if not limit or remaining is None or not reset_seconds or remaining >= limit:
            return
        self._fill(now)
        known = self.flow > 0 and self.capacity == limit
        memory = FLOW_MEMORY if known else 0.0
        self.capacity = limit
        self.used = self.used * memory + limit - remaining
        self.reset = self.reset * memory + reset_seconds
        bound = remaining + self.flow * age_seconds - taken_since
        self.level = min(self.level if known else limit, bound)

    def _fill(self, now: float) -> None:
        self.level = min(self.capacity, self.level + (now - self.at) * self.flow)
        self.at = now


@dataclass(slots=True)
class CallPacing:
    """When the next call may start. A pace of 0, as at first, means at any time."""

    pace: float = 0.0
    haste: float = 1.0
    next_at: float = 0.0
    accepted: float = 0.0
    since: float = 0.0
    changed_at: float = 0.0
    pace_before: float = 0.0

    def take(self, now: float) -> None:
        unused_seconds = now - self.next_at
        self._count(now, unused_seconds)
        spacing = 1 / self.pace if self.pace else 0.0
        if unused_seconds < spacing:
            self.pace += self.haste * min(RISE_PER_SECOND, RISE_PER_CALL * self.pace)
        # A thread that wakes late must not delay all others: one slot may be made up for.
        self.next_at = max(self.next_at + spacing, now)

    def refuse(self, now: float, started_at: float, seconds: float) -> None:
        self.next_at = max(self.next_at, now + seconds)
        if started_at < self.changed_at:
            return
        if self.changed_at and self.accepted <= 1:
            self.pace = self.pace_before
        else:
            self._slow_down(now)
        self.accepted, self.since, self.changed_at = 0.0, now, now

    def _slow_down(self, now: float) -> None:
        # The refused call is counted as well: over few calls too quick is better than too slow.
        seconds = max(now - self.since, 1 / self.pace if self.pace else FIRST_SECONDS)
        measured = self.accepted / seconds
        sure = self.pace > 0 and self.accepted > SURE_CALLS
        back_off = BACK_OFF_SURE if sure else BACK_OFF_UNSURE if self.pace else BACK_OFF_FIRST
        slower = min(measured, self.pace or measured) * back_off
        self.pace_before = self.pace
        self.pace = max(slower, DEEPEST_CUT * self.pace, 0.0 if self.pace else FIRST_PER_SECOND)
        self.haste = 1.0 if sure else HASTE_UNSURE

    def _count(self, now: float, unused_seconds: float) -> None:
        if not self.since:
            self.since = now
        elif unused_seconds > IDLE_SECONDS:
            self.since += unused_seconds
        self.accepted += 1
        if self.accepted > MEMORY_CALLS:
            self.accepted /= 2
            self.since = (now + self.since) / 2


@dataclass(slots=True)
class Allowance:
    """The time slots and both buckets of one model."""

    slots: CallPacing = field(default_factory=CallPacing)
    requests: HeaderBucket = field(default_factory=HeaderBucket)
    tokens: HeaderBucket = field(default_factory=HeaderBucket)
    starts: int = 0
    spent: int = 0


# Other calls may give tokens back meanwhile, so a wait is cut into pieces.
LONGEST_PAUSE_SECONDS = 1.0
_STOP_CHECK_SECONDS = 0.25


class CallGate(Protocol):
    """Holds the limits of all models; it never waits."""

    def attempt(self, model: str, tokens: int) -> Grant | float:
        """The grant, or the seconds until the next attempt."""

    def observe(self, model: str, grant: Grant | None, headers: RateHeaders, tokens: int) -> None:
        """An answer came to this call, or to one without a grant."""

    def hold(self, model: str, grant: Grant | None, seconds: float) -> None:
        """This call was refused: no other starts for so long."""


class RateLimit:
    """Decides when the next call may start. The thread that acquires also reports how its call
    went, by `observe` or `hold`, if it was made."""

    def __init__(self, gate: CallGate) -> None:
        self._gate = gate
        self._turns: dict[str, FifoSemaphore] = {}
        self._thread = threading.local()

    def acquire(self, model: str, tokens: int, stopping: threading.Event | None = None) -> None:
        """Wait until a request of about so many tokens may be sent to this model.

        Raises Interrupted when `stopping` is set meanwhile.
        """
        stopping = stopping or threading.Event()
        # One thread at a time, the first that came: none overtakes, and none attempts in vain.
        turn = self._turns.setdefault(model, FifoSemaphore(1))
        turn.acquire(stopping)
        try:
            while not isinstance(result := self._gate.attempt(model, tokens), Grant):
                if stopping.wait(min(result, LONGEST_PAUSE_SECONDS)):
                    raise _interrupted()
        finally:
            turn.release()
        self._grants[model] = result

    def observe(self, model: str, headers: RateHeaders, tokens: int) -> None:
        """An answer came that used so many tokens: learn from its headers."""
        grant = self._grants.get(model)
        self._gate.observe(model, grant, headers, tokens)
        if grant:
            self._grants[model] = grant._replace(tokens=tokens)

    def hold(self, model: str, seconds: float) -> None:
        """A 429 came: no call to this model for so long, and slower from then on."""
        self._gate.hold(model, self._grants.pop(model, None), seconds)

    @property
    def _grants(self) -> dict[str, Grant]:
        grants: dict[str, Grant] = self._thread.__dict__.setdefault("grants", {})
        return grants


class FifoSemaphore:
    """A semaphore whose slots are given in the order of arrival.

    With the standard one, a thread that has just released a slot takes the next before a waiting
    thread is awake, so that some calls of every batch wait until its end.
    """

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._count = self._free = count
        self._waiting: deque[threading.Lock] = deque()

    def acquire(self, stopping: threading.Event | None = None) -> None:
        """Wait for a slot; raises Interrupted when `stopping` is set meanwhile."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        while not mine.acquire(timeout=_STOP_CHECK_SECONDS if stopping else -1):
            if stopping and stopping.is_set():
                with self._lock:
                    given = mine not in self._waiting
                    if not given:
                        self._waiting.remove(mine)
                if given:
                    self.release()
                raise _interrupted()

    def release(self) -> None:
        with self._lock:
            self._free += 1
            self._hand_over()

    def resize(self, count: int) -> None:
        """Have another number of slots; one that is held meanwhile stays held."""
        with self._lock:
            self._free += count - self._count
            self._count = count
            self._hand_over()

    def _hand_over(self) -> None:
        while self._free > 0 and self._waiting:
            self._free -= 1
            self._waiting.popleft().release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


def _interrupted() -> Interrupted:
    return Interrupted("stopped while waiting for the rate limit; the call was not made")


class LocalGate:
    """The limits of all models, for the threads of one process. Other processes show only by the
    refusals they cause."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._allowances: defaultdict[str, Allowance] = defaultdict(Allowance)

    def attempt(self, model: str, tokens: int) -> Grant | float:
        with self._lock:
            now, own = self._clock(), self._allowances[model]
            seconds = max(
                own.slots.next_at - now,
                own.requests.wait_seconds(now, 1),
                own.tokens.wait_seconds(now, tokens),
            )
            if seconds > TOLERANCE_SECONDS:
                return seconds
            own.slots.take(now)
            own.requests.take(1)
            own.tokens.take(tokens)
            own.starts += 1
            own.spent += tokens
            return Grant(now, tokens, own.starts, own.spent)

    def observe(self, model: str, grant: Grant | None, headers: RateHeaders, tokens: int) -> None:
        with self._lock:
            now, own = self._clock(), self._allowances[model]
            grant = grant or Grant(now, tokens, own.starts, own.spent)
            age = now - grant.at
            own.tokens.take(tokens - grant.tokens)
            starts, spent = own.starts - grant.starts, own.spent - grant.spent
            own.requests.correct(now, headers.requests, age_seconds=age, taken_since=starts)
            own.tokens.correct(now, headers.tokens, age_seconds=age, taken_since=spent)

    def hold(self, model: str, grant: Grant | None, seconds: float) -> None:
        with self._lock:
            now, own = self._clock(), self._allowances[model]
            own.slots.refuse(now, grant.at if grant else now, seconds)
            if grant:
                # The server did not count the call that it refused.
                own.starts -= 1
                own.spent -= grant.tokens
                own.requests.take(-1)
                own.tokens.take(-grant.tokens)
