"""How many jobs a second pass through the broker, and how exactly the weights hold.

    python bench/broker.py [--kind redis|valkey] [--seconds 5] [--clients 4] [--batch 32]

A job is enqueued with admission, claimed and acked. Clients work side by side, each in batches. The last line is JSON.
The servers and the clients share the machine's cores. Exits 0 also when a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import sys
import time
from pathlib import Path
from typing import Any

from flash_wire.broker.client import Broker
from flash_wire.broker.connect import connect
from flash_wire.broker.types import AdmitLimits, Job, Level, Pool

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.servers import KINDS, running_server

POOL = Pool("bench/broker", "flash", "r1")
LIMITS = AdmitLimits(10**9, 10**6, 10**9)
WEIGHTS: Any = {"high": 3, "low": 1}
LEASE_MS = 30_000


async def work(url: str, name: str, batch: int, seconds: float) -> int:
    """Enqueues, claims and acks in batches until the time is over; returns the number of jobs acked."""
    broker, done, n = Broker(connect(url), POOL.fleet), 0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        jobs = [
            Job(f"{name}.{n + i}", "low" if (n + i) % 4 == 0 else "high", 100, 100, "R", tenant="t")
            for i in range(batch)
        ]
        n += batch
        await broker.enqueue_many(POOL, jobs, LIMITS)
        got = (await broker.claim(POOL, name, batch, 10**9, WEIGHTS, LEASE_MS)).jobs
        acked = await broker.ack_many(POOL, name, [(job.id, job.epoch, 80) for job in got])
        done += sum(answer.value == "ok" for answer in acked)
    await broker.redis.aclose()
    return done


def process(url: str, name: str, batch: int, seconds: float, tasks: int, out: Any) -> None:
    async def together() -> int:
        return sum(await asyncio.gather(*(work(url, f"{name}.{i}", batch, seconds) for i in range(tasks))))

    out.put(asyncio.run(together()))


def jobs_per_s(url: str, processes: int, batch: int, seconds: float) -> float:
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    running = [context.Process(target=process, args=(url, f"c{i}", batch, seconds, 4, out)) for i in range(processes)]
    for one in running:
        one.start()
    total = sum(out.get(timeout=seconds + 60) for _ in running)
    for one in running:
        one.join()
    return float(total / seconds)


async def weight_error(url: str) -> float:
    """Of 1,000 claims by eights with both levels waiting: how far high's share of the tokens is off, largest job less
    than 1 % of them."""
    broker, rng = Broker(connect(url), POOL.fleet), random.Random(1)
    await broker.redis.flushall()
    for i in range(0, 3000, 100):
        level: Level = "high" if i % 200 else "low"
        await broker.enqueue_many(
            POOL, [Job(f"{level}{i + n}", level, 1, rng.randint(10, 500), "R") for n in range(100)], AdmitLimits(0, 0)
        )
    tokens, jobs = {"high": 0, "low": 0}, 0
    while jobs < 1000:
        for job in (await broker.claim(POOL, "w", 8, 10**9, WEIGHTS, LEASE_MS)).jobs:
            tokens[job.level] += job.cost
            jobs += 1
    await broker.redis.aclose()
    return abs(tokens["high"] / sum(tokens.values()) - WEIGHTS["high"] / sum(WEIGHTS.values()))


async def server_cpu_s(url: str) -> float:
    client = connect(url)
    info = await client.info("cpu")
    await client.aclose()
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, default="redis")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=2, help="client processes, each with four workers in it")
    parser.add_argument(
        "--batch", type=int, default=32, help="jobs in one call: what a worker of 32 sequences has room for"
    )
    args = parser.parse_args()
    with running_server(args.kind) as server:
        before = asyncio.run(server_cpu_s(server.url))
        rate = jobs_per_s(server.url, args.clients, args.batch, args.seconds)
        server_us = (asyncio.run(server_cpu_s(server.url)) - before) * 1e6 / max(rate * args.seconds, 1)
        error = asyncio.run(weight_error(server.url))
    figures = {"jobs_per_s": round(rate), "weight_error": round(error, 5), "server_us_per_job": round(server_us, 1)}
    targets = {"jobs_per_s": [">=", 20000], "weight_error": ["<=", 0.01]}
    met = figures["jobs_per_s"] >= 20000 and figures["weight_error"] <= 0.01
    print(
        f"{args.kind}, batches of {args.batch}, {args.clients} client processes, {args.seconds:g} s: enqueue + claim +"
        f" ack of {figures['jobs_per_s']:,} jobs/s, {server_us:.1f} us of the server's CPU each;"
        f" weights off by {figures['weight_error']:.3%}"
    )
    print(json.dumps({"bench": "broker", "figures": figures, "targets": targets, "met": met}))


if __name__ == "__main__":
    main()
