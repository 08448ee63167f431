"""How many calls one model takes, as far as its answers have told.

A call starts when its slot has come and both buckets, requests and tokens, hold enough for it.

Buckets mirror the server's. Headers give their size, their level and, as used / time until full,
their flow. They are only ever corrected downwards, for what a header says is older than the calls
that started since. No headers, no buckets.

Slots learn from refusals (429), with or without headers. Until the first one they are always
open. A refusal closes them for as long as the server said. From then on they are evenly spaced,
a little wider than the calls that were accepted since the refusal before, and while callers queue
for them they come slowly closer, until the next refusal: quicker while the pace was learnt from
few calls. Refusals of calls that had started before the last change belong to that change. When
the very first call after it is refused, the server is closed rather than slow: it is undone.

All times are handed in. `lua/` holds the same arithmetic for processes that share an allowance.
"""

from dataclasses import dataclass, field

from penstock.llm.ratelimit import RateHeaders

# Below this it is rounding, and not worth another wait.
TOLERANCE_SECONDS = 1e-6
# A bucket's flow is taken from the last ten answers or so, since levels come as whole numbers.
FLOW_MEMORY = 0.9
# Fewer calls between two refusals say little about the pace that the server allows.
SURE_CALLS = 16
BACK_OFF_SURE = 0.92
BACK_OFF_UNSURE = 0.7
# The first calls came out of what the server had saved up, so they seem quicker than allowed.
BACK_OFF_FIRST = 0.6
DEEPEST_CUT = 0.25
# Too quick is soon corrected by the next refusal, too slow only by and by.
FIRST_PER_SECOND = 5.0
# Raised by 1 % a second, yet never by more than 0.2 % a call: each refusal costs one.
RISE_PER_SECOND = 0.01
RISE_PER_CALL = 0.002
HASTE_UNSURE = 10
# Calls further back count half, again and again.
MEMORY_CALLS = 256
IDLE_SECONDS = 1.0
FIRST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Grant:
    """One call that may go out: when, its size, and all that had been let out by then."""

    at: float
    tokens: int
    starts: int
    spent: int


@dataclass(slots=True)
class Bucket:
    """One limit as the headers tell it. Without a flow it is not known yet, and lets all pass."""

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
        self,
        now: float,
        limit: int | None,
        remaining: int | None,
        reset_seconds: float | None,
        *,
        age_seconds: float,
        taken_since: float,
    ) -> None:
        """What the server had left so long ago, when it had not seen what was taken since."""
        if not limit or remaining is None or not reset_seconds or remaining >= limit:
            return
        self._fill(now)
        known = self.flow > 0 and self.capacity == limit
        self._learn(limit, limit - remaining, reset_seconds, fresh=not known)
        bound = remaining + self.flow * age_seconds - taken_since
        self.level = min(self.level if known else limit, bound)

    def _learn(self, limit: int, used: int, reset_seconds: float, *, fresh: bool) -> None:
        memory = 0.0 if fresh else FLOW_MEMORY
        self.capacity = limit
        self.used = self.used * memory + used
        self.reset = self.reset * memory + reset_seconds

    def _fill(self, now: float) -> None:
        self.level = min(self.capacity, self.level + (now - self.at) * self.flow)
        self.at = now


@dataclass(slots=True)
class Slots:
    """When the next call may start. At first whenever it likes: a pace of 0 means none."""

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
        # Whoever wakes a little late does not delay all others: one slot may be made up for.
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
        # The refused call was counted as well, which makes up for the part of a call that the
        # server had saved up: over few calls this is rather too quick than too slow.
        seconds = max(now - self.since, 1 / self.pace if self.pace else FIRST_SECONDS)
        measured = self.accepted / seconds
        sure = self.pace > 0 and self.accepted > SURE_CALLS
        slower = min(measured, self.pace or measured) * self._back_off(sure)
        self.pace_before = self.pace
        self.pace = max(slower, DEEPEST_CUT * self.pace, 0.0 if self.pace else FIRST_PER_SECOND)
        self.haste = 1.0 if sure else HASTE_UNSURE

    def _back_off(self, sure: bool) -> float:
        if not self.pace:
            return BACK_OFF_FIRST
        return BACK_OFF_SURE if sure else BACK_OFF_UNSURE

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
    """The slots and both buckets of one model."""

    slots: Slots = field(default_factory=Slots)
    requests: Bucket = field(default_factory=Bucket)
    tokens: Bucket = field(default_factory=Bucket)
    starts: int = 0
    spent: int = 0

    def attempt(self, now: float, tokens: int) -> Grant | float:
        """The grant, or the seconds until it is worth asking again."""
        seconds = max(
            self.slots.next_at - now,
            self.requests.wait_seconds(now, 1),
            self.tokens.wait_seconds(now, tokens),
        )
        if seconds > TOLERANCE_SECONDS:
            return seconds
        self.slots.take(now)
        self.requests.take(1)
        self.tokens.take(tokens)
        self.starts += 1
        self.spent += tokens
        return Grant(now, tokens, self.starts, self.spent)

    def observe(self, now: float, grant: Grant | None, headers: RateHeaders, tokens: int) -> None:
        """An answer came to this call, or to one that nobody asked leave for."""
        grant = grant or Grant(now, tokens, self.starts, self.spent)
        age_seconds = now - grant.at
        self.tokens.take(tokens - grant.tokens)
        self.requests.correct(
            now,
            headers.limit_requests,
            headers.remaining_requests,
            headers.reset_requests_seconds,
            age_seconds=age_seconds,
            taken_since=self.starts - grant.starts,
        )
        self.tokens.correct(
            now,
            headers.limit_tokens,
            headers.remaining_tokens,
            headers.reset_tokens_seconds,
            age_seconds=age_seconds,
            taken_since=self.spent - grant.spent,
        )

    def hold(self, now: float, grant: Grant | None, seconds: float) -> None:
        """This call was refused: the server has taken nothing for it."""
        self.slots.refuse(now, grant.at if grant else now, seconds)
        if grant:
            self.starts -= 1
            self.spent -= grant.tokens
            self.requests.take(-1)
            self.tokens.take(-grant.tokens)
