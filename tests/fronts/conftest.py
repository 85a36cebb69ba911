"""Both fronts, on the test's own loop or in a thread for blocking clients."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import pytest_asyncio
from support.fake_core import FakeCore
from support.fronts import Fronts, serving


@pytest.fixture
def core() -> FakeCore:
    return FakeCore()


@pytest_asyncio.fixture
async def fronts(core: FakeCore) -> AsyncIterator[Fronts]:
    async with serving(core) as running:
        yield running


@pytest.fixture
def threaded(core: FakeCore) -> Iterator[Fronts]:
    """The same, served by another thread's loop."""
    started: list[Fronts] = []
    failed: list[BaseException] = []
    ready = threading.Event()

    async def serve() -> None:
        nonlocal stop
        stop = asyncio.Event()
        async with serving(core) as running:
            started.append(running)
            ready.set()
            await stop.wait()

    def run() -> None:
        nonlocal loop
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            try:
                runner.run(serve())
            except BaseException as error:  # shown by the test that waits
                failed.append(error)
                ready.set()

    loop: asyncio.AbstractEventLoop
    stop: asyncio.Event
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(20)
    if failed:
        raise failed[0]
    yield started[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(20)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], object]:
    """Waits for a condition: awaitable, 10 s at most."""

    async def wait(condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < end, "the condition did not come true in 10 s"
            await asyncio.sleep(0.005)

    return wait
