"""How often a tenant may ask: a bucket each, filled evenly over the minute."""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

_MOST_TENANTS = 10_000


class TenantRates:
    """Buckets of this process. Safe to share by threads."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_minute / 60
        # A burst of a few seconds is no offence.
        self._room = max(1.0, self._per_second * 10)
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, tenant_id: str) -> int:
        """Count a request; the seconds to wait when there is no room for it, else 0."""
        if self._per_second == 0:
            return 0
        with self._lock:
            now = self._clock()
            level, at = self._buckets.pop(tenant_id, (self._room, now))
            level = min(self._room, level + (now - at) * self._per_second)
            enough = level >= 1
            self._buckets[tenant_id] = (level - 1 if enough else level, now)
            if len(self._buckets) > _MOST_TENANTS:
                self._buckets.popitem(last=False)
        return 0 if enough else math.ceil((1 - level) / self._per_second)
