"""Rows of the tables that test the broker's scripts: before, the call, its answer, after."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from flash_wire.broker.client import Broker
from flash_wire.broker.types import (
    AdmitLimits,
    Job,
)
from support.broker_state import LEASE_MS, POOL, Contents, contents, fleet, job, sched, seed, tenant, world

NO_LIMIT = AdmitLimits(0, 0, 0)
WEIGHTS: dict[Any, int] = {"high": 3, "low": 1}
KNOWN = {"pool_flash_r1": "alive|"}


@dataclass(frozen=True)
class Row:
    name: str
    given: Contents
    when: Callable[[Broker], Awaitable[Any]]
    answer: Any
    then: Contents


def a_job(id: str = "a", **fields: Any) -> Job:
    usual: dict[str, Any] = {"level": "high", "need": 10, "cost": 12, "owner": "R", "tenant": "t"}
    return Job(id, **(usual | fields))


def enqueue(limits: AdmitLimits = NO_LIMIT, **fields: Any) -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.enqueue(POOL, a_job(**fields), limits)


def claim(slots: int = 8, kv_tokens: int = 1000, **more: Any) -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.claim(POOL, "w2", slots, kv_tokens, WEIGHTS, LEASE_MS, **more)


def beat(epoch: int = 1, worker: str = "w1") -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.beat(POOL, worker, {"a": epoch}, LEASE_MS)


def ack(epoch: int = 1, worker: str = "w1", used: int = 12) -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.ack(POOL, "a", epoch, worker, used)


def release(epoch: int = 1, worker: str = "w1", crashes: int | None = None) -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.release(POOL, "a", epoch, worker, crashes)


def reap(limit: int = 10) -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.reap(POOL, limit)


def cancel(id: str = "a") -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.cancel(POOL, id)


def restore(epoch: int = 1, worker: str = "w1", **fields: Any) -> Callable[[Broker], Awaitable[Any]]:
    return lambda b: b.restore(POOL, a_job(**fields), epoch, worker, LEASE_MS)


WAITING = world(job(), {"q:high": {"a": 1}}, sched(seq=1, tokens_high=12, tokens_low=0), tenant(12, 1), fleet())
RUNNING = world(
    job("a", "active", charged=4.0),
    {"lease": {"a": "leased"}},
    sched(seq=1, tokens_high=0, tokens_low=0, vt=0, pass_high=4, pass_low=0),
    tenant(12, 1),
    fleet(),
)
LAPSED = RUNNING | {"lease": {"a": "lapsed"}}


def without(contents: Contents, *names: str) -> Contents:
    return {k: v for k, v in contents.items() if k not in names}


def but(contents: Contents, name: str, **fields: Any) -> Contents:
    """`contents` with some fields of one hash changed."""
    named = {k.replace("_", ":") if name != "job:a" else k: v for k, v in fields.items()}
    return contents | {name: contents.get(name, {}) | named}


REQUEUED = world(
    job("a", epoch=1, claimed="now"),
    {"q:high": {"a": 1}, "wake": ["1"]},
    sched(seq=1, tokens_high=12, tokens_low=0, vt=0, pass_high=0, pass_low=0),
    tenant(12, 1),
    fleet(**KNOWN),
)
GONE_A = without(RUNNING, "lease", "tenant:t", "job:a")


async def check(broker: Broker, row: Row) -> None:
    await seed(broker.redis, row.given)
    assert await contents(broker.redis) == row.given, "the row's own `given` is not what was seeded"
    assert await row.when(broker) == row.answer
    assert await contents(broker.redis) == row.then


def rows(table: list[Row]) -> pytest.MarkDecorator:
    assert len({row.name for row in table}) == len(table)
    return pytest.mark.parametrize("row", table, ids=lambda row: row.name.replace(" ", "-"))
