"""The promise on weights: of the tokens claimed while both levels wait, each has its share, within the larger of 1 %
and one largest job."""

from __future__ import annotations

import random
from typing import Any

import pytest
from flash_wire.broker.client import Broker
from flash_wire.broker.types import AdmitLimits, Claimed, Job, Level
from support.broker_state import POOL

NO_LIMIT = AdmitLimits(0, 0)
LEASE_MS = 60_000


async def fill(broker: Broker, level: Level, costs: list[int], prefix: str = "") -> None:
    jobs = [Job(f"{prefix}{level}{i}", level, 1, cost, "R") for i, cost in enumerate(costs)]
    for i in range(0, len(jobs), 256):
        await broker.enqueue_many(POOL, jobs[i : i + 256], NO_LIMIT)


async def claim(broker: Broker, slots: int, weights: dict[Any, int]) -> list[Claimed]:
    return (await broker.claim(POOL, "w", slots, 10**9, weights, LEASE_MS)).jobs


def tokens(jobs: list[Claimed], level: Level) -> int:
    return sum(job.cost for job in jobs if job.level == level)


@pytest.mark.parametrize(("high", "low"), [(3, 1), (4, 1), (1, 1), (7, 3), (1, 5)])
@pytest.mark.parametrize("slots", [1, 8])
async def test_weights_hold_by_tokens_in_a_thousand_claims(broker: Broker, high: int, low: int, slots: int) -> None:
    rng = random.Random(high * 100 + low)
    costs = {"high": [rng.randint(1, 50) for _ in range(1500)], "low": [rng.randint(10, 400) for _ in range(1500)]}
    await fill(broker, "high", costs["high"])
    await fill(broker, "low", costs["low"])
    jobs: list[Claimed] = []
    while len(jobs) < 1000:
        jobs += await claim(broker, slots, {"high": high, "low": low})
    total = sum(job.cost for job in jobs)
    error = abs(tokens(jobs, "high") - total * high / (high + low))
    assert error <= max(0.01 * total, 400)


async def test_an_idle_level_earns_no_burst(broker: Broker) -> None:
    weights = {"high": 4, "low": 1}
    await fill(broker, "low", [1] * 700)
    for _ in range(50):
        await claim(broker, 10, weights)
    await fill(broker, "high", [1] * 100)
    jobs = await claim(broker, 25, weights)
    assert 20 <= tokens(jobs, "high") <= 21


async def test_restored_jobs_give_no_level_a_burst(broker: Broker) -> None:
    """Their charge was lost with the pass: refunding it at ack would be credit from nothing."""
    for i in range(8):
        await broker.restore(POOL, Job(f"r{i}", "low", 1, 500, "R"), 1, "w", LEASE_MS)
    await fill(broker, "high", [1] * 300)
    await fill(broker, "low", [1] * 300)
    await broker.ack_many(POOL, "w", [(f"r{i}", 1, 20) for i in range(8)])
    jobs = await claim(broker, 100, {"high": 1, "low": 1})
    assert 49 <= tokens(jobs, "low") <= 51


async def test_hand_backs_do_not_bend_the_weights(broker: Broker) -> None:
    weights, rng = {"high": 4, "low": 1}, random.Random(5)
    await fill(broker, "high", [1] * 900)
    await fill(broker, "low", [1] * 900)
    kept: list[Claimed] = []
    while len(kept) < 600:
        for job in await claim(broker, 8, weights):
            if job.level == "high" and rng.random() < 0.5:
                await broker.release(POOL, job.id, job.epoch, "w")
            else:
                kept.append(job)
    assert abs(tokens(kept, "high") - 480) <= 6


async def test_the_estimate_is_corrected_by_what_was_used(broker: Broker) -> None:
    """High is estimated four times too dear: with the correction it gets its half of the tokens all the same."""
    weights, used = {"high": 1, "low": 1}, {"high": 0, "low": 0}
    await fill(broker, "high", [40] * 800)
    await fill(broker, "low", [10] * 800)
    while sum(used.values()) < 10_000:
        jobs = await claim(broker, 4, weights)
        await broker.ack_many(POOL, "w", [(job.id, job.epoch, 10) for job in jobs])
        for job in jobs:
            used[job.level] += 10
    assert abs(used["high"] - used["low"]) <= 100


async def test_no_level_starves_and_an_empty_one_gives_its_turn_away(broker: Broker) -> None:
    await fill(broker, "high", [1] * 1200)
    await fill(broker, "low", [1] * 3)
    jobs: list[Claimed] = []
    while len(jobs) < 1100:
        jobs += await claim(broker, 50, {"high": 1000, "low": 1})
    assert tokens(jobs, "low") == 2
    assert tokens(jobs, "high") == len(jobs) - 2
