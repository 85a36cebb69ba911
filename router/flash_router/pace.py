"""How fast a pool works, measured over all routers, and what that makes of Retry-After."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable

from flash_wire.broker.types import Depth, Level

WINDOW = 30.0
"""Seconds that the measurement looks back."""
SHORTEST, LONGEST = 1.0, 60.0
JITTER = 0.2
UNKNOWN = 5.0
"""Seconds, where nothing was measured yet."""


class Pace:
    """Tokens of work per second that one pool has finished: the slope of the broker's count of acked work."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def see(self, levels: dict[Level, Depth]) -> None:
        """One reading of the pool, about once a second."""
        now, used = self._clock(), sum(depth.used for depth in levels.values())
        if self._seen and used < self._seen[-1][1]:
            self._seen.clear()  # The broker lost its count.
        self._seen.append((now, used))
        while len(self._seen) > 2 and self._seen[0][0] < now - WINDOW:
            self._seen.popleft()

    def rate(self) -> float:
        """Tokens per second over the window; 0 while nothing was finished."""
        if len(self._seen) < 2:
            return 0.0
        (first, before), (last, after) = self._seen[0], self._seen[-1]
        return (after - before) / (last - first) if last > first else 0.0

    def retry_after(self, ahead: int, share: float) -> float:
        """Seconds until `ahead` tokens have drained at this level's share, within [1, 60], with jitter."""
        rate = self.rate() * share
        wait = ahead / rate if rate > 0 else UNKNOWN
        wait *= random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreads clients, guards nothing
        return min(LONGEST, max(SHORTEST, wait))
