"""The queue restarts, is wiped, freezes or is away: streams go on, and what is unfinished is registered again."""

from __future__ import annotations

import asyncio

import pytest
from flash_router.core import Refused, Why
from flash_router.session import Session
from flash_wire.broker.types import AdmitLimits, Enqueued
from flash_wire.settings import RouterLive
from support.link_fleet import Answer, LinkFleet, until
from support.scripted_engine import Script
from support.servers import Server


async def running(fleet: LinkFleet, count: int, tokens: int) -> list[asyncio.Task[Answer]]:
    seen: dict[int, int] = {}
    tasks = [
        asyncio.create_task(fleet.ask(fleet.request(seed, tokens), on_tokens=lambda n, s=seed: seen.update({s: n})))
        for seed in range(count)
    ]
    await until(lambda: len(seen) >= 8, "streams")
    return tasks


@pytest.mark.parametrize("fault", ["restart", "kill", "wiped", "flushall", "tail cut", "frozen"])
async def test_under_twenty_streams(fragile_fleet: LinkFleet, own_server: Server, fault: str) -> None:
    fleet = fragile_fleet
    await fleet.router()
    for name in ("w0", "w1"):
        await fleet.worker(name, Script(step=0.01, max_slots=6))
    tasks = await running(fleet, 20, 120)
    if fault == "flushall":
        await fleet.broker.redis.flushall()
    elif fault == "frozen":
        own_server.freeze()
        await asyncio.sleep(1.0)
        own_server.thaw()
    elif fault == "tail cut":
        await asyncio.to_thread(own_server.kill)
        own_server.cut_tail(3000)
        await asyncio.to_thread(own_server.start)
    else:
        await asyncio.to_thread(own_server.restart, fault != "wiped", kill=fault == "kill")
    for seed, got in enumerate(await asyncio.gather(*tasks)):
        fleet.expect(got, seed, 120)
    await fleet.nothing_left()


async def test_streams_do_not_wait_for_the_broker_and_new_requests_are_held(
    fragile_fleet: LinkFleet, own_server: Server
) -> None:
    fleet = fragile_fleet
    core = await fleet.router({"limits": {"maxWait": "20s"}})
    await fleet.worker("w0", Script(step=0.005, max_slots=8))
    tasks = await running(fleet, 8, 300)
    await asyncio.to_thread(own_server.stop)
    for seed, got in enumerate(await asyncio.gather(*tasks)):
        fleet.expect(got, seed, 300)
    late = asyncio.create_task(fleet.ask(fleet.request(50, 10)))
    await until(lambda: core.stats().held == {"flash": 1}, "the held request")
    assert core.ready
    await asyncio.to_thread(own_server.start)
    fleet.expect(await late, 50, 10)
    await fleet.nothing_left()


async def test_held_no_longer_than_max_wait(fragile_fleet: LinkFleet, own_server: Server) -> None:
    fleet = fragile_fleet
    core = await fleet.router({"limits": {"maxWait": "700ms", "heldRequests": 1}})
    await fleet.worker()
    await asyncio.to_thread(own_server.stop)
    first = asyncio.create_task(fleet.ask(fleet.request(1, 5)))
    await until(lambda: core.stats().held == {"flash": 1}, "the held request")
    with pytest.raises(Refused, match="heldRequests"):
        await fleet.ask(fleet.request(2, 5))
    with pytest.raises(Refused, match="broker does not answer") as refused:
        await first
    assert refused.value.why is Why.UNAVAILABLE
    assert refused.value.retry_after
    await asyncio.to_thread(own_server.start)
    core.reload(RouterLive())  # The worker may need longer than 700 ms to find the broker again.
    fleet.expect(await fleet.ask(fleet.request(3, 5)), 3, 5)
    await fleet.nothing_left()


async def test_a_burst_is_no_outage(fleet: LinkFleet) -> None:
    """1,000 at once, and a broker that takes its time with each: all wait their turn, none is told of an outage."""
    core = await fleet.router({"limits": {"heldRequests": 1, "queueTokens": 1_000_000, "maxWait": "60s"}})
    await fleet.worker("w0", Script(max_slots=64, per_step=4))
    jobs, real = core._dispatcher.jobs, core._dispatcher.jobs.enqueue
    held: set[str] = set()

    async def slow(session: Session, seq: int, limits: AdmitLimits) -> Enqueued:
        await asyncio.sleep(0.05)
        held.update(line.held for line in core._dispatcher.lines.values())
        return await real(session, seq, limits)

    jobs.enqueue = slow  # type: ignore[method-assign]
    tasks = [asyncio.create_task(fleet.ask(fleet.request(seed, 2))) for seed in range(1000)]
    await until(lambda: core._dispatcher.turns > 900, "the burst")
    for seed, got in enumerate(await asyncio.gather(*tasks)):
        fleet.expect(got, seed, 2)
    assert held == {""}
    assert core._dispatcher.turns == 0
    await fleet.nothing_left()


async def test_a_burst_beyond_what_can_be_queued_is_busy(fleet: LinkFleet) -> None:
    core = await fleet.router({"limits": {"queueRequests": 5}})
    await fleet.worker("w0", Script(max_slots=4))
    go, real = asyncio.Event(), core._dispatcher.jobs.enqueue

    async def gated(session: Session, seq: int, limits: AdmitLimits) -> Enqueued:
        await go.wait()
        return await real(session, seq, limits)

    core._dispatcher.jobs.enqueue = gated  # type: ignore[method-assign]
    tasks = [asyncio.create_task(fleet.ask(fleet.request(seed, 2))) for seed in range(10)]
    await until(lambda: core._dispatcher.turns == 10, "ten that wait")
    with pytest.raises(Refused, match=r"limits\.queueRequests is 5") as refused:
        await fleet.ask(fleet.request(50, 2))
    assert (refused.value.why, refused.value.retry_after) == (Why.BUSY, 1.0)
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    fleet.expect(await fleet.ask(fleet.request(51, 2)), 51, 2)
    await fleet.nothing_left()
