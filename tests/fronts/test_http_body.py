"""Bodies in flight: bounded in bytes, the small ones never refused for the large, and all room given back."""

from __future__ import annotations

import asyncio
import threading

import pytest
from flash_router import http_body
from flash_router.core import Refused, Why
from flash_router.http_body import MAX_BODY, SMALL_BODY, Bodies, BodyTooLong


class Sent:
    """A request of which only the body is read."""

    def __init__(self, size: int, *, part: int = 50_000, gate: asyncio.Event | None = None) -> None:
        self.size, self.part, self.gate = size, part, gate
        self.read = 0

    async def stream(self):
        while self.read < self.size:
            if self.gate is not None and self.read > self.size // 2:
                await self.gate.wait()
            part = min(self.part, self.size - self.read)
            self.read += part
            yield b"x" * part


async def test_small_on_the_loop_and_large_in_a_thread() -> None:
    bodies = Bodies()
    here = threading.get_ident()
    assert await bodies.read(Sent(SMALL_BODY), lambda body: (len(body), threading.get_ident())) == (SMALL_BODY, here)
    size, there = await bodies.read(Sent(SMALL_BODY + 1), lambda body: (len(body), threading.get_ident()))
    assert size == SMALL_BODY + 1
    assert there != here
    assert bodies.room.taken == 0


async def test_large_ones_beyond_the_room_are_busy_and_small_ones_are_not(until) -> None:
    bodies = Bodies()
    bodies.room.most = 500_000
    gate = asyncio.Event()
    slow = Sent(400_000, gate=gate)
    first = asyncio.create_task(bodies.read(slow, len))
    await until(lambda: bodies.room.taken > 200_000)
    late = Sent(400_000)
    with pytest.raises(Refused) as refused:
        await bodies.read(late, len)
    assert refused.value.why is Why.BUSY
    assert refused.value.retry_after
    assert late.read == late.size, "a client reads its answer only after it has sent all"
    assert await bodies.read(Sent(1000), len) == 1000
    gate.set()
    assert await first == 400_000
    assert bodies.room.taken == 0
    assert await bodies.read(Sent(400_000), len) == 400_000


async def test_too_long_and_broken_ones_give_their_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = Bodies()
    endless = Sent(1 << 40, part=1 << 20)
    with pytest.raises(BodyTooLong):
        await bodies.read(endless, len)
    assert endless.read <= http_body.MAX_DISCARDED + (1 << 20)
    with pytest.raises(BodyTooLong):
        await bodies.read(Sent(MAX_BODY + 1, part=1 << 20), len)
    monkeypatch.setattr(http_body, "BODY_WITHIN", 0.05)
    with pytest.raises(TimeoutError):
        await bodies.read(Sent(400_000, gate=asyncio.Event()), len)

    def broken(body: bytes) -> int:
        raise Refused(Why.INVALID, "no")

    with pytest.raises(Refused, match="no"):
        await bodies.read(Sent(400_000), broken)
    assert bodies.room.taken == 0
