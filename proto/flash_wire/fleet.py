"""Who is alive and what is wanted: the only writer and the only reader of the fleet record in the broker.

Routers, workers, the operator, the scaler, `flashfleet status` and the dashboard all read `snapshot`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from redis.asyncio import Redis

from flash_wire.broker import keys
from flash_wire.broker.client import Broker, parse_depth
from flash_wire.broker.scripts import command, script
from flash_wire.broker.types import Depth, Level, Pool

TTL_MS = 15_000
"""Life of an entry. Workers and routers use the same one and announce every third of it: the scripts tell an outage of
the broker from a router's death by the time since anybody was heard."""
ANNOUNCE_EVERY_S = TTL_MS / 3000


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    incarnation: str
    """New at each start of the process."""
    name: str
    tier: str
    state: str
    """loading, ready or draining."""
    rev: str = ""
    slots: int = 0
    slots_free: int = 0
    kv_tokens: int = 0
    kv_tokens_free: int = 0
    max_model_len: int = 0
    static_hash: str = ""
    live_hash: str = ""
    last_step_ms: int = 0
    """Age of the last engine step, in ms."""
    http: str = ""
    """host:port of its /metrics and health."""
    detail: str = ""
    """While loading: what it is doing, for people."""
    protocol: int = 1


@dataclass(frozen=True, slots=True)
class RouterRecord:
    id: str
    """New at each start of the process; the `owner` of its jobs."""
    state: str
    """ready or draining."""
    fleet: str
    """host:port that workers dial."""
    grpc: str = ""
    http: str = ""
    held: dict[str, int] = field(default_factory=dict)
    """Requests held as text, by tier: what wakes a tier from zero."""
    held_tokens: int = 0
    static_hash: str = ""
    live_hash: str = ""
    share: float = 0.0
    """Observed share of standard."""
    workers: list[str] = field(default_factory=list)
    """Incarnations of the workers that are attached and ready here: what a request can reach."""
    protocol: int = 1


@dataclass(frozen=True, slots=True)
class PoolDepth:
    pool: Pool
    levels: dict[Level, Depth]
    active: int


@dataclass(frozen=True, slots=True)
class Fleet:
    """One consistent reading. Lapsed entries are left out."""

    workers: list[WorkerRecord]
    routers: list[RouterRecord]
    desired: dict[str, int]
    """Wanted workers per tier, written by the operator or by `flashfleet up`."""
    pools: list[PoolDepth]
    time_ms: int
    """Redis TIME of the reading."""


async def announce_worker(broker: Broker | Redis, fleet: str, worker: WorkerRecord, ttl_ms: int = TTL_MS) -> None:
    """Says that a worker lives. An unclean end is seen when the entry lapses, `ttl_ms` later."""
    pool = ""
    if worker.rev:
        pool = "pool:" + keys.pool_name(Pool(fleet, worker.tier, worker.rev))
    await _announce(broker, fleet, "w:" + worker.incarnation, worker, ttl_ms, pool)


async def announce_router(broker: Broker | Redis, fleet: str, router: RouterRecord, ttl_ms: int = TTL_MS) -> None:
    """Says that a router lives. When its entry lapses its jobs are dropped, and their workers hear CANCELLED."""
    await _announce(broker, fleet, "r:" + router.id, router, ttl_ms, "")


async def withdraw(broker: Broker | Redis, fleet: str, record: WorkerRecord | RouterRecord) -> None:
    """Takes an entry out at a clean end. A router does so after its last job has ended, never before."""
    name = "w:" + record.incarnation if isinstance(record, WorkerRecord) else "r:" + record.id
    await command(_redis(broker), "HDEL", keys.fleet_key(fleet), name)


async def set_desired(broker: Broker | Redis, fleet: str, desired: dict[str, int]) -> None:
    """Writes the wanted number of workers of the tiers named; other tiers stay as they are."""
    pairs = [word for tier, count in desired.items() for word in (f"desired:{tier}", str(count))]
    if pairs:
        await command(_redis(broker), "HSET", keys.fleet_key(fleet), *pairs)


async def snapshot(broker: Broker | Redis, fleet: str) -> Fleet:
    """The fleet in one consistent reading. An entry that cannot be read (a far newer release) is left out."""
    now, alive, desired, pools = await script("fleet_read").run(
        _redis(broker), [keys.fleet_key(fleet)], [keys.fleet_prefix(fleet)]
    )
    entries = [(field, _record(field, text)) for field, text in _pairs(alive)]
    depths = []
    for name, answer in _pairs(pools):
        tier, _, rev = name.partition(":")
        levels, active = parse_depth(answer)
        depths.append(PoolDepth(Pool(fleet, tier, rev), levels, active))
    return Fleet(
        workers=sorted((r for _, r in entries if isinstance(r, WorkerRecord)), key=lambda r: (r.name, r.incarnation)),
        routers=sorted((r for _, r in entries if isinstance(r, RouterRecord)), key=lambda r: r.id),
        desired={tier: int(count) for tier, count in _pairs(desired)},
        pools=sorted(depths, key=lambda d: (d.pool.tier, d.pool.rev)),
        time_ms=int(now),
    )


async def _announce(
    broker: Broker | Redis, fleet: str, name: str, record: WorkerRecord | RouterRecord, ttl_ms: int, pool: str
) -> None:
    text = json.dumps(dataclasses.asdict(record), separators=(",", ":"))
    await script("fleet_announce").run(
        _redis(broker), [keys.fleet_key(fleet)], [name, text, ttl_ms, pool, keys.fleet_prefix(fleet)]
    )


def _redis(broker: Broker | Redis) -> Redis:
    return broker.redis if isinstance(broker, Broker) else broker


def _pairs(flat: list[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)


R = TypeVar("R", WorkerRecord, RouterRecord)


def _record(name: str, text: str) -> WorkerRecord | RouterRecord | None:
    return _read(WorkerRecord, text) if name.startswith("w:") else _read(RouterRecord, text)


def _read(kind: type[R], text: str) -> R | None:
    """Fields that a newer release added are left out; a missing one without a default makes the entry unreadable."""
    try:
        data = json.loads(text)
        return kind(**{f.name: data[f.name] for f in dataclasses.fields(kind) if f.name in data})
    except (ValueError, TypeError):
        return None
