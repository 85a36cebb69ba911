"""An event loop whose clock jumps to the next timer: minutes of waiting take milliseconds, and are exact."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumps(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits for ever: a deadlock")
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumps = _Jumps()
        super().__init__(self._jumps)

    def time(self) -> float:
        return self._jumps.now


def run(main: Callable[[], Coroutine[Any, Any, T]], limit: float = 100_000.0) -> T:
    """The result of `main()` on a loop without real I/O. Raises TimeoutError after `limit` virtual seconds."""

    async def limited() -> T:
        async with asyncio.timeout(limit):
            return await main()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(limited())


def clock() -> float:
    return asyncio.get_running_loop().time()
