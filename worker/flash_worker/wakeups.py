"""What makes the claim loop look again: a signal of the broker, or room that came free here."""

from __future__ import annotations

import asyncio

from flash_wire.broker.client import Broker
from flash_wire.broker.types import Pool
from flash_wire.tasks import end

LONGEST = 1.0
"""Seconds. No wait is longer, so that a lost signal costs no more than this."""


class Wakeups:
    def __init__(self, broker: Broker, pool: Pool) -> None:
        self._broker = broker
        self._pool = pool
        self._event = asyncio.Event()
        self._waiter: asyncio.Task[bool] | None = None

    def now(self) -> None:
        """Room came free, or a link."""
        self._event.set()

    async def wait(self, seconds: float = LONGEST) -> None:
        """Until there may be something to claim, at most `seconds`."""
        try:
            async with asyncio.timeout(min(seconds, LONGEST)):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            self._event.clear()

    def watch_queue(self) -> None:
        """Have the broker signal too. Its wait stays out while room that came free makes the loop claim meanwhile."""

        def woken(task: asyncio.Task[bool]) -> None:
            if not task.cancelled():
                task.exception()  # an outage shows at the next claim
            self._event.set()

        if self._waiter is None or self._waiter.done():
            self._waiter = asyncio.create_task(self._broker.wait(self._pool, LONGEST))
            self._waiter.add_done_callback(woken)

    async def close(self) -> None:
        await end(self._waiter)
