"""Large pieces of work that would stall the event loop: a few threads, and a bound on what waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from flash_router.core import Refused, Why

T = TypeVar("T")
THREADS = 2
RETRY_AFTER = 1.0
"""Seconds a client is told to stay away: a desk works off its fill in about this time."""


class Room:
    """A bound on how much lies here at once. Of one event loop."""

    def __init__(self, most: int, what: str) -> None:
        """`what` names the unit in the refusal."""
        self.most = most
        self.taken = 0
        self._what = what

    def take(self, size: int) -> None:
        """Raises Refused(BUSY) where `size` more is too much. `give` it back when it is gone."""
        if self.taken + size > self.most:
            raise Refused(
                Why.BUSY,
                f"this router has {self.taken} {self._what} in hand and takes at most {self.most} at once: send it"
                " again a little later",
                retry_after=RETRY_AFTER,
            )
        self.taken += size

    def give(self, size: int) -> None:
        self.taken -= size

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        self.take(size)
        try:
            yield
        finally:
            self.give(size)


class Desk:
    """THREADS threads of its own: the loop's default executor has more, and other work waits for those."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=name)

    async def do(self, work: Callable[[], T]) -> T:
        """The result of `work`, done in a thread. Work that has not begun is dropped with its caller."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
