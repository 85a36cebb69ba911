"""The only caller of the broker's scripts: one typed function for each operation.

Redis errors surface as redis exceptions, and nothing is tried again in here. Every operation but `claim` may be sent
again when its answer was lost; a claim whose answer was lost is taken back by `reap` when the leases lapse.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio import Redis

from flash_wire import PROTOCOL
from flash_wire.broker import keys
from flash_wire.broker.scripts import command, script
from flash_wire.broker.types import (
    LEVELS,
    SUSPECT_CRASHES,
    Acked,
    Admission,
    AdmitLimits,
    Cancelled,
    Claim,
    Claimed,
    Depth,
    Dropped,
    Enqueued,
    Held,
    Job,
    Level,
    Pool,
    Reaped,
    Released,
    Restored,
    ServerIdentity,
    Swept,
)

MAX_BATCH = 256
"""Most jobs in one call: the server does nothing else meanwhile."""
MAX_BLOCK_S = 1.0
MAX_DEAD = 1000
SCAN_COUNT = 512


class Broker:
    """The queue of one FlashDeployment. Safe for concurrent use within one event loop.

    `redis` must decode its answers, as `flash_wire.broker.connect.connect` does. `fleet` is namespace/name.
    """

    def __init__(self, redis: Redis, fleet: str) -> None:
        encoder: Any = redis.get_encoder
        if not encoder().decode_responses:
            raise ValueError("the broker needs a client with decode_responses=True: make it with connect(url)")
        keys.fleet_prefix(fleet)
        self.redis = redis
        self.fleet = fleet
        self._cursors: dict[Pool, int] = {}

    async def enqueue(self, pool: Pool, job: Job, limits: AdmitLimits) -> Enqueued:
        """Admits the job and puts it in its place; DUPLICATE is as good as ADMITTED.

        The caller's router is taken as alive from this call on. A job id lives once in a pool.
        """
        return (await self.enqueue_many(pool, [job], limits))[0]

    async def enqueue_many(self, pool: Pool, jobs: Sequence[Job], limits: AdmitLimits) -> list[Enqueued]:
        """As enqueue, for up to 256 jobs in one script. Answers stand in the order of the jobs."""
        if not jobs:
            return []
        _check_batch([job.id for job in jobs])
        args: list[Any] = [limits.queue_tokens, limits.queue_requests, limits.tenant_tokens]
        for job in jobs:
            args += _job_args(job)
        return [
            Enqueued(Admission(outcome), int(seq), int(count), int(tokens), int(limit), int(have))
            for outcome, seq, count, tokens, limit, have in await self._run("enqueue", pool, args)
        ]

    async def claim(
        self,
        pool: Pool,
        worker: str,
        slots: int,
        kv_tokens: int,
        weights: Mapping[Level, int],
        lease_ms: int,
        max_skip: int = 32,
    ) -> Claim:
        """Up to `slots` jobs whose `need` sums up to at most `kv_tokens`, by weight; dead heads are dropped.

        At most 256 jobs and `max_skip` dropped ones a call. `dropped` must be told to the jobs' routers.
        """
        if any(weights[level] < 1 for level in LEVELS):
            raise ValueError(f"weights must be at least 1, not {dict(weights)}: a level with none would starve")
        args = [
            worker,
            min(slots, MAX_BATCH),
            kv_tokens,
            lease_ms,
            weights["high"],
            weights["low"],
            max_skip,
            SUSPECT_CRASHES,
        ]
        jobs, dropped = await self._run("claim", pool, args)
        return Claim([_claimed(row) for row in jobs], [_dropped(row) for row in dropped])

    async def beat(self, pool: Pool, worker: str, holdings: Mapping[str, int], lease_ms: int) -> dict[str, Held]:
        """Extends the leases of `holdings` (job id -> epoch), all in one call. To be sent every lease_ms / 3."""
        if not holdings:
            return {}
        args: list[Any] = [worker, lease_ms]
        for held in holdings.items():
            args += held
        said = await self._run("beat", pool, args)
        return {id: Held(word) for id, word in zip(holdings, said, strict=True)}

    async def ack(self, pool: Pool, id: str, epoch: int, worker: str, used: int) -> Acked:
        """Ends a job whose end its router has confirmed (DoneAck, or a DONE refusal). `used` is tokens of work."""
        return (await self.ack_many(pool, worker, [(id, epoch, used)]))[0]

    async def ack_many(self, pool: Pool, worker: str, ends: Sequence[tuple[str, int, int]]) -> list[Acked]:
        """As ack, for up to 256 (id, epoch, used) in one script."""
        if not ends:
            return []
        _check_batch([id for id, _, _ in ends])
        args: list[Any] = [worker]
        for id, epoch, used in ends:
            args += (id, epoch, max(used, 0))
        return [Acked(word) for word in await self._run("ack", pool, args)]

    async def release(self, pool: Pool, id: str, epoch: int, worker: str, crashes: int | None = None) -> Released:
        """Hands a job back under its old seq. `crashes` is given by its router only, and set on any live job."""
        args = [id, epoch, worker, "" if crashes is None else crashes]
        return Released(await self._run("release", pool, args))

    async def reap(self, pool: Pool, limit: int = 64) -> Reaped:
        """Puts up to `limit` jobs whose lease lapsed back. Any router may call it, about once a second."""
        requeued, dropped = await self._run("reap", pool, [max(1, min(limit, MAX_BATCH))])
        return Reaped(list(requeued), [_dropped(row) for row in dropped])

    async def cancel(self, pool: Pool, id: str) -> Cancelled:
        """Ends a job wherever it is. An enqueue or restore of it that arrives later is answered FINISHED or GONE."""
        return Cancelled(await self._run("cancel", pool, [id]))

    async def restore(self, pool: Pool, job: Job, epoch: int, worker: str, lease_ms: int) -> Restored:
        """Makes a job active again under (epoch, worker), by the router that still streams it. No quota refuses it."""
        return Restored(await self._run("restore", pool, [worker, epoch, lease_ms, *_job_args(job)]))

    async def sweep(self, pool: Pool) -> Swept:
        """One bounded step of comparing job hashes with queue and leases. To be called slowly (every few seconds)."""
        prefix = keys.job_prefix(pool)
        cursor, found = await command(
            self.redis, "SCAN", self._cursors.get(pool, 0), "MATCH", _glob_literal(prefix) + "*", "COUNT", SCAN_COUNT
        )
        self._cursors[pool] = int(cursor)
        if int(cursor) == 0:
            del self._cursors[pool]
        ids = [str(key).removeprefix(prefix) for key in found]
        repaired: list[str] = []
        for i in range(0, len(ids), MAX_BATCH):
            repaired += await self._run("sweep", pool, ids[i : i + MAX_BATCH])
        return Swept(repaired, int(cursor) == 0)

    async def depth(self, pool: Pool) -> tuple[dict[Level, Depth], int]:
        """Both levels, and how many jobs are active."""
        return parse_depth(await self._run("depth", pool, []))

    async def wait(self, pool: Pool, timeout: float = MAX_BLOCK_S) -> bool:  # noqa: ASYNC109 - the server counts it
        """Blocks until work may be there, at most 1 s. True means: claim now. Holds one connection meanwhile."""
        seconds = max(0.01, min(timeout, MAX_BLOCK_S))
        return await command(self.redis, "BRPOP", keys.wake_key(pool), seconds) is not None

    async def bury(self, pool: Pool, id: str) -> int:
        """Lists a poisoned job in `dead`, newest 1,000. The caller ends it with cancel. Returns how many are listed."""
        return int(await script("bury").run(self.redis, [keys.dead_key(pool)], [id, MAX_DEAD]))

    async def dead(self, pool: Pool, limit: int = 100) -> list[tuple[str, int]]:
        """The poisoned jobs, newest first: (id, Redis TIME in ms)."""
        rows: Any = await self.redis.zrevrange(keys.dead_key(pool), 0, max(limit, 1) - 1, withscores=True)
        return [(id, int(at)) for id, at in rows]

    async def time_ms(self) -> int:
        """Redis TIME in ms: what Job.deadline is written in."""
        seconds, micros = await self.redis.time()
        return int(seconds) * 1000 + int(micros) // 1000

    async def generation(self) -> ServerIdentity:
        """Who answers. Record the one read *before* registering again began, and do so again when it has changed."""
        key = keys.generation_key(self.fleet)
        generation = await self.redis.get(key)
        if generation is None:
            await self.redis.set(key, secrets.token_hex(8), nx=True)
            generation = await self.redis.get(key)
        info = await self.redis.info("server")
        return ServerIdentity(str(info.get("run_id", "")), str(generation))

    async def _run(self, name: str, pool: Pool, args: Sequence[Any]) -> Any:
        if pool.fleet != self.fleet:
            raise ValueError(f"pool of fleet {pool.fleet!r} asked of the broker of {self.fleet!r}")
        head = [keys.job_prefix(pool), keys.tenant_prefix(pool.fleet), PROTOCOL]
        return await script(name).run(self.redis, keys.pool_keys(pool), [*head, *args])


def parse_depth(answer: Any) -> tuple[dict[Level, Depth], int]:
    """What lib_depth.lua returns, as records."""
    high, low, active = answer
    levels: dict[Level, Depth] = {"high": Depth(*map(int, high)), "low": Depth(*map(int, low))}
    return levels, int(active)


def _claimed(row: Sequence[Any]) -> Claimed:
    id, epoch, owner, level, need, cost, seq, crashes, deadline = row
    return Claimed(id, int(epoch), owner, level, int(need), int(cost), int(seq), int(crashes), int(deadline))


def _dropped(row: Sequence[Any]) -> Dropped:
    id, owner, why = row
    return Dropped(id, owner, why)


def _job_args(job: Job) -> list[Any]:
    if not job.id:
        raise ValueError("a job needs an id")
    if job.level not in LEVELS:
        raise ValueError(f"job {job.id}: level must be high or low, not {job.level!r}")
    if job.need < 1 or job.cost < 1:
        raise ValueError(f"job {job.id}: need and cost must be at least 1 token, not {job.need} and {job.cost}")
    if not job.owner:
        raise ValueError(f"job {job.id}: owner must be the router's id")
    return [
        job.id,
        job.level,
        job.need,
        job.cost,
        job.owner,
        job.deadline,
        job.tenant,
        job.request,
        job.seq,
        job.epoch,
        job.crashes,
    ]


def _check_batch(ids: Sequence[str]) -> None:
    if len(ids) > MAX_BATCH:
        raise ValueError(f"{len(ids)} jobs in one call: at most {MAX_BATCH}, send the rest in another")
    if len(set(ids)) != len(ids):
        raise ValueError("the same job id stands twice in one call")


def _glob_literal(text: str) -> str:
    return "".join(f"\\{c}" if c in "*?[]\\^" else c for c in text)
