"""Who is alive: entries lapse by Redis time, and an outage of the broker is not taken for a death."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from flash_wire import fleet as fleets
from flash_wire.broker import keys
from flash_wire.broker.client import Broker
from flash_wire.broker.types import AdmitLimits, Claim, Dropped, Held, Job, Pool
from flash_wire.fleet import (
    RouterRecord,
    WorkerRecord,
    announce_router,
    announce_worker,
    set_desired,
    snapshot,
    withdraw,
)
from support.broker_state import LEASE_MS, POOL

FLEET = "default/chat"
WEIGHTS: Any = {"high": 3, "low": 1}
KEY = keys.fleet_key(FLEET)


def worker(incarnation: str = "w1", **fields: Any) -> WorkerRecord:
    return WorkerRecord(
        **(
            {"incarnation": incarnation, "name": "flash-0", "tier": "flash", "state": "ready", "rev": "r1", "slots": 8}
            | fields
        )
    )


def router(id: str = "R", **fields: Any) -> RouterRecord:
    return RouterRecord(**({"id": id, "state": "ready", "fleet": "127.0.0.1:9", "held": {"flash": 2}} | fields))


async def lapse(broker: Broker, field: str) -> None:
    """Puts an entry's expiry into the past."""
    value = await broker.redis.hget(KEY, field)
    await broker.redis.hset(KEY, field, "1|" + str(value).partition("|")[2])


async def trust(broker: Broker) -> None:
    """As if announcements had come without a gap for longer than a ttl."""
    now = await broker.time_ms()
    await broker.redis.hset(KEY, "clock", f"{now + 600_000}|{now - 1}")


async def until(true: Callable[[], Awaitable[bool]], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not await true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_what_is_announced_is_read_back(broker: Broker) -> None:
    await announce_worker(broker, FLEET, worker())
    await announce_worker(broker.redis, FLEET, worker("w0", name="flash-1", rev="", state="loading", detail="3 of 9"))
    await announce_router(broker, FLEET, router())
    await set_desired(broker, FLEET, {"flash": 2, "standard": 0})
    await set_desired(broker, FLEET, {"standard": 1})
    await broker.enqueue(POOL, Job("a", "low", 10, 12, "R"), AdmitLimits(0, 0))
    seen = await snapshot(broker, FLEET)
    assert seen.workers == [worker(), worker("w0", name="flash-1", rev="", state="loading", detail="3 of 9")]
    assert seen.routers == [router()]
    assert seen.desired == {"flash": 2, "standard": 1}
    assert [(d.pool, d.levels["low"].queued, d.levels["low"].tokens, d.active) for d in seen.pools] == [
        (POOL, 1, 12, 0)
    ]
    assert abs(seen.time_ms - await broker.time_ms()) < 10_000


async def test_an_empty_fleet_is_readable(broker: Broker) -> None:
    seen = await snapshot(broker, FLEET)
    assert (seen.workers, seen.routers, seen.desired, seen.pools) == ([], [], {}, [])


async def test_an_entry_lapses_by_itself_and_a_withdrawn_one_is_gone_at_once(broker: Broker) -> None:
    await announce_worker(broker, FLEET, worker(), ttl_ms=50)
    await announce_router(broker, FLEET, router())
    await withdraw(broker, FLEET, router())
    assert (await snapshot(broker, FLEET)).routers == []

    async def gone() -> bool:
        return not (await snapshot(broker, FLEET)).workers

    await until(gone)


async def test_depth_of_a_pool_without_workers_is_still_shown(broker: Broker) -> None:
    old = Pool(FLEET, "flash", "r0")
    await broker.enqueue(old, Job("a", "high", 10, 12, "R"), AdmitLimits(0, 0))
    await lapse(broker, "pool:flash:r0")
    assert [d.pool for d in (await snapshot(broker, FLEET)).pools] == [old]
    await broker.cancel(old, "a")
    assert (await snapshot(broker, FLEET)).pools == []


async def test_a_process_that_restarts_for_ever_leaves_nothing_behind(broker: Broker) -> None:
    for i in range(20):
        await announce_worker(broker, FLEET, worker(f"w{i}"))
        await lapse(broker, f"w:w{i}")
        await trust(broker)
    await announce_worker(broker, FLEET, worker("last"))
    fields = await broker.redis.hkeys(KEY)
    assert [f for f in fields if f.startswith("w:")] == ["w:last"]


async def test_an_entry_of_a_newer_release_is_read_as_far_as_it_is_known(broker: Broker) -> None:
    future = await broker.time_ms() + 60_000
    await broker.redis.hset(KEY, "r:new", f"{future}|" + '{"id":"new","state":"ready","fleet":"x:1","colour":"blue"}')
    await broker.redis.hset(KEY, "r:odd", f"{future}|" + '{"identity":"odd"}')
    await broker.redis.hset(KEY, "w:bad", f"{future}|not json")
    seen = await snapshot(broker, FLEET)
    assert [r.id for r in seen.routers] == ["new"]
    assert seen.workers == []


async def test_a_router_that_enqueues_before_it_announces_does_not_lose_its_jobs(broker: Broker) -> None:
    """After a wipe a router registers again at once, maybe before its next announcement."""
    await announce_worker(broker, FLEET, worker())
    await trust(broker)
    await broker.enqueue(POOL, Job("a", "high", 10, 12, "R"), AdmitLimits(0, 0))
    assert [j.id for j in (await broker.claim(POOL, "w1", 1, 100, WEIGHTS, LEASE_MS)).jobs] == ["a"]
    assert (await snapshot(broker, FLEET)).routers == []


async def test_the_jobs_of_a_router_that_died_are_dropped(broker: Broker) -> None:
    await announce_router(broker, FLEET, router())
    await announce_worker(broker, FLEET, worker())
    for id in "ab":
        await broker.enqueue(POOL, Job(id, "high", 10, 12, "R"), AdmitLimits(0, 0))
    await broker.claim(POOL, "w1", 1, 100, WEIGHTS, LEASE_MS)
    await lapse(broker, "r:R")
    await trust(broker)
    assert await broker.beat(POOL, "w1", {"a": 1}, LEASE_MS) == {"a": Held.CANCELLED}
    assert await broker.claim(POOL, "w1", 1, 100, WEIGHTS, LEASE_MS) == Claim([], [Dropped("b", "R", "owner_lapsed")])


async def test_an_outage_longer_than_a_ttl_cancels_no_stream(broker: Broker) -> None:
    """Nobody could announce meanwhile: every entry looks lapsed, and the worker's beat may come before the router."""
    ttl = 100
    await announce_router(broker, FLEET, router(), ttl)
    await announce_worker(broker, FLEET, worker(), ttl)
    await broker.enqueue(POOL, Job("a", "high", 10, 12, "R"), AdmitLimits(0, 0))
    await broker.claim(POOL, "w1", 1, 100, WEIGHTS, LEASE_MS)
    await lapse(broker, "r:R")

    async def silence() -> bool:
        heard = str(await broker.redis.hget(KEY, "clock")).partition("|")[0]
        return await broker.time_ms() > int(heard)

    await until(silence)
    assert await broker.beat(POOL, "w1", {"a": 1}, LEASE_MS) == {"a": Held.EXTENDED}
    await announce_worker(broker, FLEET, worker(), 60_000)  # the worker is back first: the router gets a ttl to come
    assert await broker.beat(POOL, "w1", {"a": 1}, LEASE_MS) == {"a": Held.EXTENDED}


async def test_a_router_that_stays_away_after_an_outage_is_found_out(broker: Broker) -> None:
    await announce_router(broker, FLEET, router(), 50)
    await broker.enqueue(POOL, Job("a", "high", 10, 12, "R"), AdmitLimits(0, 0))
    await lapse(broker, "r:R")
    await broker.redis.hset(KEY, "clock", "1|1")  # an outage

    async def cancelled() -> bool:
        await announce_worker(broker, FLEET, worker(), 2000)
        return bool((await broker.claim(POOL, "w1", 1, 1, WEIGHTS, LEASE_MS)).dropped)

    await announce_worker(broker, FLEET, worker(), 2000)
    assert not (await broker.claim(POOL, "w1", 1, 1, WEIGHTS, LEASE_MS)).dropped
    await until(cancelled)


def test_entries_are_announced_well_within_their_life() -> None:
    assert fleets.ANNOUNCE_EVERY_S * 1000 * 2 < fleets.TTL_MS
