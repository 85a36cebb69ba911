"""Random paths of the model, call by call on a real server: the broker part of the model is what the scripts do."""

from __future__ import annotations

import random
from typing import Any

import pytest
from broker.model.broker_part import RULES, Redis
from broker.model.broker_part import Job as ModelJob
from broker.model.protocol import FAULTS, State, steps
from broker.model.search import start
from flash_wire.broker import keys
from flash_wire.broker.client import Broker
from flash_wire.broker.types import AdmitLimits, Job
from flash_wire.fleet import RouterRecord, announce_router
from support.broker_state import POOL

LEASE_MS = 600_000
WEIGHTS: Any = {"high": 3, "low": 1}
FLEET_KEY = keys.fleet_key(POOL.fleet)
SCHED, HIGH, LOW, LEASE, WAKE, _ = keys.pool_keys(POOL)
JOB = keys.job_prefix(POOL) + "j"
ENDED = ("done", "cancelled", "expired", "lapsed")


class Real:
    """The same calls on a real server."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.redis: Any = broker.redis
        self.late = False
        self.saved: list[tuple[str, bytes, int]] = []

    def job(self, top: int, crashes: int) -> Job:
        return Job("j", "high", 1, 5, "R", deadline=1 if self.late else 0, tenant="t", epoch=top, crashes=crashes)

    async def do(self, call: tuple[Any, ...], before: Redis) -> None:
        name, *args = call
        b = self.broker
        match name:
            case "enqueue":
                await b.enqueue(POOL, self.job(*args), AdmitLimits(0, 0))
            case "restore":
                epoch, worker, top, crashes = args
                await b.restore(POOL, self.job(top, crashes), epoch, worker, LEASE_MS)
            case "claim":
                await b.claim(POOL, args[0], 1, 10, WEIGHTS, LEASE_MS)
            case "beat":
                await b.beat(POOL, args[1], {"j": args[0]}, LEASE_MS)
            case "ack":
                await b.ack(POOL, "j", args[0], args[1], 5)
            case "release":
                await b.release(POOL, "j", *args)
            case "cancel":
                await b.cancel(POOL, "j")
            case "reap":
                await b.reap(POOL)
            case "lapse":
                await self.redis.zadd(LEASE, {"j": 0})
            case "announce":
                await announce_router(b, POOL.fleet, RouterRecord("R", "ready", "127.0.0.1:1"), LEASE_MS)
            case "trust":
                now = await b.time_ms()
                await self.redis.hset(FLEET_KEY, "clock", f"{now + LEASE_MS}|{now - 1}")
            case "owner_lapses":
                await self.redis.hset(FLEET_KEY, "r:R", "1|{}")
            case "outage":
                await self.redis.hset(FLEET_KEY, mapping={"r:R": "1|{}", "clock": "1|1"})
            case "deadline":
                self.late = True
                await self._deadline_passes()
            case "flush":
                await self.redis.flushall()
            case "save":
                self.saved = await self._dump()
            case "cut":
                await self.redis.flushall()
                for key, value, ttl in self.saved:
                    await self._raw("RESTORE", key, max(ttl, 0), value)
                await self.redis.hset(FLEET_KEY, "clock", "1|1")
                await self._deadline_passes()
            case _:
                raise AssertionError(f"no such call: {name}")

    async def _deadline_passes(self) -> None:
        if self.late and await self.redis.exists(JOB):
            await self.redis.hset(JOB, "deadline", 1)

    async def _dump(self) -> list[tuple[str, bytes, int]]:
        names = await self.redis.keys("*")
        return [(key, await self._raw("DUMP", key), await self.redis.pttl(key)) for key in names]

    async def _raw(self, *words: Any) -> Any:
        """DUMP's answer is bytes, which the client of the broker would decode."""
        from redis.asyncio import Redis as Client

        where = self.redis.connection_pool.connection_kwargs
        async with Client(host=where["host"], port=where["port"]) as client:
            return await client.execute_command(*words)

    async def state(self) -> Redis:
        hash = await self.redis.hgetall(JOB)
        score = await self.redis.zscore(LEASE, "j")
        now = await self.broker.time_ms()
        queued = await self.redis.zscore(HIGH, "j") is not None
        job = None
        if hash:
            lease = "" if score is None else "held" if score > now else "lapsed"
            job = ModelJob(
                hash["state"],
                int(hash.get("epoch", 0)),
                int(hash.get("hold", 0)),
                hash.get("worker", ""),
                int(hash.get("crashes", 0)),
                lease,
            )
            assert queued == (job.state == "queued")
        else:
            assert not queued
            assert score is None
        account = int(await self.redis.hget(keys.tenant_prefix(POOL.fleet) + "t", "requests") or 0)
        entry = await self.redis.hget(FLEET_KEY, "r:R") or "0|"
        heard, _, trusted = (await self.redis.hget(FLEET_KEY, "clock") or "0|0").partition("|")
        return Redis(job, account, int(entry.partition("|")[0]) > now, int(heard) >= now >= int(trusted), self.late)


def comparable(r: Redis) -> Redis:
    """Once ended, only that and how is of interest."""
    if r.job and r.job.state in ENDED:
        return r._replace(job=ModelJob(r.job.state, lease=r.job.lease))
    return r


@pytest.mark.parametrize("seed", range(40))
async def test_the_scripts_do_what_the_model_says(broker: Broker, seed: int) -> None:
    rng = random.Random(seed)
    real = Real(broker)
    await broker.redis.hset(FLEET_KEY, "clock", "1|1")
    state: State = start({fault: 1 for fault in FAULTS if fault != "expire"})
    path: list[str] = []
    for _ in range(60):
        ways = list(steps(state, RULES))
        if not ways:
            break
        free = [way for way in ways if way.free]
        way = rng.choice(free if free and rng.random() < 0.7 else ways)
        path.append(way.name)
        if way.call:
            await real.do(way.call, state.redis)
            assert comparable(await real.state()) == comparable(way.after.redis), path
        state = way.after
