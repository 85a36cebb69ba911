"""A work queue of keys: each key at most once in it, one pass per key at a time, failures slow their own key down."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_log = logging.getLogger("flash_operator.queue")


class WorkQueue(Generic[K]):
    """`work(key)` returns the seconds after which it wants to run again, or None.

    A pass that raises is tried again after a wait that doubles, at least the error's `retry_after` where it has one.
    A key added while its pass runs gets one more pass afterwards: no event is lost, and no two passes of a key overlap.
    """

    def __init__(
        self,
        work: Callable[[K], Awaitable[float | None]],
        *,
        workers: int = 8,
        first_wait: float = 0.2,
        longest_wait: float = 60.0,
        failed: Callable[[K, Exception], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work, self._failed, self._clock = work, failed, clock
        self._workers, self._first, self._longest = workers, first_wait, longest_wait
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._running: dict[K, float] = {}
        self._after: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._open = False
        self._changed = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()

    # -- what is in it --------------------------------------------------------------------------------------------

    def add(self, key: K, wait: float = 0.0) -> None:
        """Due in `wait` seconds, or sooner if it already was."""
        due = self._clock() + wait
        if key in self._running:
            self._after[key] = min(due, self._after.get(key, due))
        elif due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._heap, (due, next(self._order), key))
            self._changed.set()

    def forget(self, key: K) -> None:
        """The thing is gone: no further pass, no memory of failures. A running pass ends by itself."""
        self._due.pop(key, None)
        self._after.pop(key, None)
        self._failures.pop(key, None)

    @property
    def depth(self) -> int:
        """Keys that are due and wait for a worker."""
        now = self._clock()
        return sum(due <= now for due in self._due.values())

    @property
    def oldest(self) -> float:
        """Seconds since the oldest due or running key became due."""
        now = self._clock()
        return max(0.0, *(now - due for due in (*self._due.values(), *self._running.values(), now)))

    @property
    def failing(self) -> int:
        """Keys whose last pass failed."""
        return len(self._failures)

    # -- running --------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        self._open = True
        self._changed.set()

    def pause(self) -> None:
        """No new pass starts; keys stay. Passes that run are left to end."""
        self._open = False

    async def idle(self) -> None:
        """Returns when no pass runs."""
        await self._quiet.wait()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._serve(), name=f"reconcile-{number}")

    async def _serve(self) -> None:
        while True:
            key, due = await self._next()
            self._running[key] = due
            self._quiet.clear()
            wait = None
            try:
                wait = await self._work(key)
                self._failures.pop(key, None)
            except Exception as error:
                wait = self._backoff(key, error)
            finally:
                del self._running[key]
                if not self._running:
                    self._quiet.set()
                again = self._after.pop(key, None)
            if wait is not None:
                self.add(key, wait)
            if again is not None:  # what a failing pass itself stirs up must not make it spin
                self.add(key, max(1.0 if key in self._failures else 0.0, again - self._clock()))

    def _backoff(self, key: K, error: Exception) -> float:
        count = self._failures[key] = self._failures.get(key, 0) + 1
        if self._failed:
            self._failed(key, error)
        else:
            _log.error("%s: %s", key, error)
        wait = min(self._longest, self._first * 2 ** min(count - 1, 20))
        wait *= random.uniform(0.75, 1.25)  # noqa: S311 - keys that failed together are not tried together
        return max(wait, float(getattr(error, "retry_after", 0.0)))

    async def _next(self) -> tuple[K, float]:
        while True:
            if self._open:
                while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
                    heapq.heappop(self._heap)  # forgotten, or due sooner since
                if self._heap and self._heap[0][0] <= self._clock():
                    due, _, key = heapq.heappop(self._heap)
                    del self._due[key]
                    return key, due
            self._changed.clear()
            wait = max(0.0, self._heap[0][0] - self._clock()) if self._open and self._heap else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
