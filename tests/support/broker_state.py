"""Seeds a broker with readable contents, and reads all of its keys back in the same form.

Names are relative to the pool ("job:a", "q:high") or to the fleet ("tenant:t", "fleet"). Times are written as words:
"now" for a stamp of the last moments, "leased" and "lapsed" for a lease, "alive|..." and "lapsed|..." for an entry.
A hash that is to expire holds {"expires": "yes"} beside its fields.
"""

from __future__ import annotations

import time
from typing import Any

from flash_wire.broker import keys
from flash_wire.broker.types import Pool
from redis.asyncio import Redis

POOL = Pool("default/chat", "flash", "r1")
LEASE_MS = 30_000
Contents = dict[str, Any]
STAMPS = ("enqueued", "claimed")
NUMBERS = {"vt", "pass:high", "pass:low", "charged"}


def job(id: str = "a", state: str = "queued", **fields: Any) -> Contents:
    """A job's hash with usual fields: level high, need 10, cost 12, owner R, tenant t, seq 1."""
    active = {"worker": "w1", "hold": "1", "epoch": "1", "charged": 0.0, "claimed": "now"} if state == "active" else {}
    base = {
        "v": "1",
        "state": state,
        "level": "high",
        "need": "10",
        "cost": "12",
        "owner": "R",
        "deadline": "0",
        "tenant": "t",
        "request": "",
        "seq": "1",
        "epoch": "0",
        "crashes": "0",
        "hold": "0",
        "worker": "",
        "charged": 0.0,
        "enqueued": "now",
    }
    given = {k: v if k in NUMBERS else str(v) for k, v in fields.items()}
    return {f"job:{id}": base | active | given}


def ended(id: str, state: str, **fields: Any) -> Contents:
    return job(id, state, expires="yes", **fields)


def sched(**fields: Any) -> Contents:
    """sched(seq=1, tokens_high=12): underscores stand for colons."""
    named = {k.replace("_", ":"): v for k, v in fields.items()}
    return {"sched": {k: float(v) if k in NUMBERS else str(v) for k, v in named.items()}}


def tenant(tokens: int, requests: int, name: str = "t") -> Contents:
    return {f"tenant:{name}": {"tokens": str(tokens), "requests": str(requests)}}


def fleet(owner: str = "alive", *, counting: bool = True, **fields: Any) -> Contents:
    """`counting`: announcements came without a gap, so an expiry that passed means death."""
    entries = {} if owner == "absent" else {"r:R": f"{owner}|" + "{}"}
    clock = {"clock": "counting"} if counting else {}
    return {"fleet": entries | clock | {k.replace("_", ":"): str(v) for k, v in fields.items()}}


def world(*parts: Contents) -> Contents:
    out: Contents = {}
    for part in parts:
        out |= part
    return out


async def seed(redis: Redis, contents: Contents) -> None:
    now = int(time.time() * 1000)
    for name, value in contents.items():
        key = _key(name)
        if name == "lease":
            for id, when in value.items():
                await redis.zadd(key, {id: now + LEASE_MS if when == "leased" else now - 1000})
        elif name.startswith("q:") or name == "dead":
            await redis.zadd(key, value)
        elif isinstance(value, list):
            await redis.rpush(key, *value)
        else:
            fields = {k: _written(k, v, now) for k, v in value.items() if k != "expires"}
            await redis.hset(key, mapping=fields)
            if "expires" in value:
                await redis.pexpire(key, 60_000)


def _written(field: str, value: Any, now: int) -> Any:
    if field in STAMPS and value == "now":
        return now
    if field == "deadline":
        return {"past": now - 1000, "later": now + 600_000}.get(value, value)
    if field == "clock":
        return f"{now + 600_000}|{now - 600_000}"
    if isinstance(value, str) and value.startswith(("alive|", "lapsed|")):
        word, _, rest = value.partition("|")
        return f"{now + 600_000 if word == 'alive' else now - 600_000}|{rest}"
    return repr(value) if isinstance(value, float) else value


async def contents(redis: Redis) -> Contents:
    """Every key of the server."""
    now = int(time.time() * 1000)
    out: Contents = {}
    async for key in redis.scan_iter(count=1000):
        name = key.removeprefix(keys.pool_prefix(POOL)).removeprefix(keys.fleet_prefix(POOL.fleet))
        kind = await redis.type(key)
        if kind == "hash":
            fields = await redis.hgetall(key)
            out[name] = {k: _shown(k, v, now) for k, v in fields.items()}
            if await redis.pttl(key) > 0:
                out[name]["expires"] = "yes"
        elif kind == "zset":
            scores = await redis.zrange(key, 0, -1, withscores=True)
            out[name] = {id: _shown_score(name, score, now) for id, score in scores}
        elif kind == "list":
            out[name] = await redis.lrange(key, 0, -1)
        else:
            out[name] = await redis.get(key)
    return out


def _shown(field: str, value: str, now: int) -> Any:
    if field in NUMBERS:
        return round(float(value), 6)
    if field in STAMPS:
        return "now" if abs(now - int(value)) < 60_000 else value
    if field == "deadline":
        at = int(value)
        return "0" if at == 0 else "past" if at <= now else "later"
    if field == "clock":
        return "counting"
    if "|" in value:
        at, _, rest = value.partition("|")
        return f"{'alive' if int(at) > now else 'lapsed'}|{rest}"
    return value


def _shown_score(name: str, score: float, now: int) -> Any:
    if name == "lease":
        return "leased" if score > now else "lapsed"
    return "now" if name == "dead" and abs(now - score) < 60_000 else int(score)


def _key(name: str) -> str:
    if name == "fleet" or name.startswith("tenant:"):
        return keys.fleet_prefix(POOL.fleet) + name
    return keys.pool_prefix(POOL) + name
