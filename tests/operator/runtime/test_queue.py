"""The work queue: one pass of a key at a time, nothing lost, failures slow their own key down."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict

import pytest
from flash_operator.queue import WorkQueue
from hypothesis import given, settings
from hypothesis import strategies as st
from support.virtual_time import clock, run


async def _through(queue: WorkQueue[str], seconds: float) -> None:
    """Lets the queue work for some virtual seconds."""
    running = asyncio.create_task(queue.run())
    queue.resume()
    await asyncio.sleep(seconds)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_a_key_added_often_runs_once() -> None:
    async def main() -> None:
        ran: list[str] = []

        async def work(key: str) -> None:
            ran.append(key)

        queue = WorkQueue(work, clock=clock)
        for _ in range(50):
            queue.add("a")
        queue.add("b")
        assert queue.depth == 2
        await _through(queue, 1)
        assert ran == ["a", "b"]
        assert (queue.depth, queue.oldest) == (0, 0.0)

    run(main)


def test_a_key_added_while_it_runs_runs_again() -> None:
    async def main() -> None:
        seen: list[int] = []
        state = 0

        async def work(key: str) -> None:
            read = state
            await asyncio.sleep(1)
            seen.append(read)

        async def edit() -> None:
            nonlocal state
            await asyncio.sleep(0.5)
            state = 1
            queue.add("a")

        queue = WorkQueue(work, clock=clock)
        queue.add("a")
        await asyncio.gather(_through(queue, 10), edit())
        assert seen == [0, 1]

    run(main)


def test_failures_wait_ever_longer_up_to_a_minute() -> None:
    async def main() -> None:
        times: list[float] = []

        async def work(key: str) -> None:
            times.append(clock())
            raise ValueError("no")

        queue = WorkQueue(work, clock=clock, failed=lambda key, error: None)
        queue.add("a")
        await _through(queue, 1000)
        waits = [later - sooner for sooner, later in itertools.pairwise(times)]
        for number, wait in enumerate(waits):
            nominal = min(60.0, 0.2 * 2**number)
            assert 0.75 * nominal - 0.01 <= wait <= 1.25 * nominal + 0.01
        assert max(waits) > 40
        assert len(times) < 40
        assert queue.failing == 1

    run(main)


def test_the_server_says_when_to_come_back() -> None:
    async def main() -> None:
        times: list[float] = []

        class Busy(Exception):
            retry_after = 30.0

        async def work(key: str) -> None:
            times.append(clock())
            if len(times) == 1:
                raise Busy

        queue = WorkQueue(work, clock=clock, failed=lambda key, error: None)
        queue.add("a")
        await _through(queue, 100)
        assert times[1] - times[0] == pytest.approx(30, abs=0.1)
        assert queue.failing == 0

    run(main)


def test_an_edit_of_a_failing_key_does_not_wait_for_its_backoff() -> None:
    async def main() -> None:
        good = False
        done: list[float] = []

        async def work(key: str) -> None:
            if not good:
                raise ValueError("no")
            done.append(clock())

        queue = WorkQueue(work, clock=clock, failed=lambda key, error: None)
        queue.add("a")

        async def mend() -> None:
            nonlocal good
            await asyncio.sleep(500)
            good = True
            queue.add("a")

        await asyncio.gather(_through(queue, 600), mend())
        assert done == [pytest.approx(500, abs=0.1)]

    run(main)


def test_a_slow_key_holds_no_other_up() -> None:
    async def main() -> None:
        done: list[str] = []

        async def work(key: str) -> None:
            await asyncio.sleep(1000 if key == "slow" else 0.001)
            done.append(key)

        queue = WorkQueue(work, workers=2, clock=clock)
        for key in ("slow", *map(str, range(50))):
            queue.add(key)
        await _through(queue, 1)
        assert len(done) == 50

    run(main)


def test_what_is_paused_stays_and_what_is_forgotten_goes() -> None:
    async def main() -> None:
        ran: list[str] = []

        async def work(key: str) -> float:
            ran.append(key)
            return 5.0

        queue = WorkQueue(work, clock=clock)
        queue.add("a")
        queue.add("b")
        queue.forget("b")
        await _through(queue, 1)
        assert ran == ["a"]
        queue.pause()
        running = asyncio.create_task(queue.run())
        await asyncio.sleep(60)
        assert ran == ["a"]
        assert queue.depth == 1
        assert queue.oldest == pytest.approx(56, abs=0.1)
        queue.resume()
        await asyncio.sleep(1)
        assert ran == ["a", "a"]
        await queue.idle()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(main)


@settings(max_examples=60, deadline=None)
@given(
    adds=st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 20), st.floats(0, 5)), max_size=40),
    workers=st.integers(1, 4),
    slow=st.floats(0.01, 3),
    flaky=st.integers(0, 5),
)
def test_every_change_is_seen_by_a_later_pass(
    adds: list[tuple[str, float, float]], workers: int, slow: float, flaky: int
) -> None:
    """Whatever is added whenever: a pass of that key that succeeds begins afterwards, and no two of a key overlap."""

    async def main() -> None:
        active: Counter[str] = Counter()
        version: Counter[str] = Counter()
        handled: dict[str, int] = defaultdict(int)
        left = flaky

        async def work(key: str) -> None:
            nonlocal left
            active[key] += 1
            assert active[key] == 1
            assert sum(active.values()) <= workers
            read = version[key]
            try:
                await asyncio.sleep(slow)
                if left:
                    left -= 1
                    raise ValueError("no")
            finally:
                active[key] -= 1
            handled[key] = read

        queue = WorkQueue(work, workers=workers, clock=clock, failed=lambda key, error: None)

        async def add(key: str, at: float, wait: float) -> None:
            await asyncio.sleep(at)
            version[key] += 1
            queue.add(key, wait)

        await asyncio.gather(_through(queue, 1000), *(add(*one) for one in adds))
        assert handled == {key: count for key, count in version.items() if count}

    run(main)
