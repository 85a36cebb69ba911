"""The ends that the broker has yet to hear of, sent in batches until it answers."""

from __future__ import annotations

import asyncio
import logging

import redis.exceptions
from flash_wire.broker.client import MAX_BATCH, Broker
from flash_wire.broker.types import Pool

log = logging.getLogger(__name__)

TROUBLE = (redis.exceptions.RedisError, OSError, TimeoutError)
"""What a broker that is away, loading or cut off raises."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two tries while the broker is away."""


class BrokerHealth:
    """Whether the broker answers this worker: logged when it changes, counted, and nothing else depends on it."""

    def __init__(self) -> None:
        self.failures = 0
        self._answering = True

    def failed(self, error: Exception) -> None:
        self.failures += 1
        if self._answering:
            log.warning("the broker does not answer (%s): what runs goes on", type(error).__name__)
        self._answering = False

    def answered(self) -> None:
        if not self._answering:
            log.warning("the broker answers again")
        self._answering = True


class Acks:
    """Bounded by the jobs that a worker can hold: it claims nothing while the broker is away."""

    def __init__(self, broker: Broker, pool: Pool, incarnation: str, health: BrokerHealth) -> None:
        self._broker = broker
        self._pool = pool
        self._incarnation = incarnation
        self._health = health
        self._waiting: dict[str, tuple[int, int]] = {}
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, id: str, epoch: int, used: int) -> None:
        """A job whose end its router has confirmed. used: tokens of work."""
        self._waiting[id] = (epoch, used)
        self._filled.set()

    async def sent(self, timeout: float) -> None:  # noqa: ASYNC109 - running out is not an error here
        """Until the broker has heard of all, or `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while self._waiting:
                    self._emptied.clear()
                    await self._emptied.wait()
        except TimeoutError:
            return

    async def run(self) -> None:
        """For ever."""
        pause = FIRST_PAUSE
        while True:
            await self._filled.wait()
            batch = dict(list(self._waiting.items())[:MAX_BATCH])
            try:
                await self._broker.ack_many(
                    self._pool, self._incarnation, [(id, epoch, used) for id, (epoch, used) in batch.items()]
                )
                self._health.answered()
            except TROUBLE as error:
                self._health.failed(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            except Exception:
                log.exception("an ack failed; the leases of %d jobs lapse instead", len(batch))
            pause = FIRST_PAUSE
            for id, what in batch.items():
                if self._waiting.get(id) == what:
                    del self._waiting[id]
            if not self._waiting:
                self._filled.clear()
                self._emptied.set()
