"""What one job asks of the broker: one operation at a time, in order, each tried until it is answered.

Two operations of a job that overtake each other leave zombies that hold quota, so they never run at once. A job
whose session is over ends with a cancel when the broker may still think that it lives.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis.exceptions

log = logging.getLogger(__name__)

TROUBLE = (redis.exceptions.RedisError, OSError, TimeoutError)
"""What a broker that is away, loading or cut off raises."""
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two tries."""
CANCEL_FOR = 60.0
"""Seconds after the end for which a cancel is tried; the job's own deadline ends it in the broker after that."""
AT_ONCE = 64
"""Operations of all jobs on their way at the same time."""

Call = Callable[[], Awaitable[Any]]


@dataclass(slots=True)
class _Op:
    name: str
    call: Call
    answer: asyncio.Future[Any]


class Traffic:
    """Shared by all jobs of a router: how many operations run at once, and whether the broker answers."""

    def __init__(self) -> None:
        self.room = asyncio.Semaphore(AT_ONCE)
        self.answering = True
        self._waiting: set[asyncio.Future[None]] = set()

    @contextmanager
    def change(self) -> Iterator[asyncio.Future[None]]:
        """A future that is done when `answering` changes. Each waiter has its own: many may wait, at no cost."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(changed)
        try:
            yield changed
        finally:
            self._waiting.discard(changed)

    def failed(self, error: Exception) -> None:
        if self.answering:
            log.warning("the broker does not answer (%s): requests are held", _brief(error))
            self._turn(False)

    def answered(self) -> None:
        if not self.answering:
            log.warning("the broker answers again")
            self._turn(True)

    def _turn(self, answering: bool) -> None:
        self.answering = answering
        for changed in self._waiting:
            if not changed.done():
                changed.set_result(None)


class Ops:
    """One job's line of operations."""

    __slots__ = ("_cancel", "_deadline", "_queue", "_running", "_task", "_traffic", "touched")

    def __init__(self, traffic: Traffic, deadline: float) -> None:
        self._traffic = traffic
        self._deadline = deadline
        self._queue: deque[_Op] = deque()
        self._running = ""
        self._task: asyncio.Task[None] | None = None
        self._cancel: Call | None = None
        self.touched = False
        """Something was sent: the broker may know the job."""

    @property
    def idle(self) -> bool:
        return self._task is None

    def waits(self, name: str) -> bool:
        """Whether an operation of this name has not been answered yet."""
        return self._running == name or any(op.name == name for op in self._queue)

    def add(self, name: str, call: Call) -> asyncio.Future[Any]:
        """Put an operation at the end of the line. The future is cancelled when the line closes first."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._cancel is not None:
            answer.cancel()
            return answer
        self._queue.append(_Op(name, call, answer))
        self._start()
        return answer

    def close(self, cancel: Call | None) -> None:
        """The session is over. What waits is dropped; `cancel`, if given, is the last operation.

        Without `cancel` (the worker acks the job) one is still needed where an operation is unanswered: then the
        caller passes it.
        """
        if self._cancel is not None:
            return
        for op in self._queue:
            op.answer.cancel()
        self._queue.clear()
        if cancel is None or not self.touched:
            self._cancel = _nothing
            return
        self._cancel = cancel
        self._start()

    async def closed(self) -> None:
        """Until the line is empty."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._queue:
                op = self._queue.popleft()
                self._running = op.name
                await self._ask(op)
                self._running = ""
            if self._cancel is not None and self._cancel is not _nothing:
                self._running = "cancel"
                await self._ask(_Op("cancel", self._cancel, asyncio.get_running_loop().create_future()))
        finally:
            self._running = ""
            self._task = None
        if self._queue:
            self._start()

    async def _ask(self, op: _Op) -> None:
        pause = FIRST_PAUSE
        is_cancel = op.name == "cancel"
        until = time.monotonic() + CANCEL_FOR if is_cancel else self._deadline
        while is_cancel or self._cancel is None:
            try:
                async with self._traffic.room:
                    self.touched = True
                    result = await op.call()
            except TROUBLE as error:
                self._traffic.failed(error)
            except Exception as error:
                # A mistake of ours, not of the network: trying again gives the same.
                log.exception("operation %s failed", op.name)
                if not op.answer.done():
                    op.answer.set_exception(error)
                    op.answer.exception()
                return
            else:
                self._traffic.answered()
                if not op.answer.done():
                    op.answer.set_result(result)
                return
            if time.monotonic() + pause > until:
                break
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        op.answer.cancel()


async def _nothing() -> None:
    return None


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
