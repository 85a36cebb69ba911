"""Random lives of a queue: the scripts on a real server and the queue in plain Python give the same answers, and the
same order, counts and passes after every step."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import hypothesis.strategies as st
import pytest
from flash_wire.broker import keys
from flash_wire.broker.client import Broker
from flash_wire.broker.connect import connect
from flash_wire.broker.types import LEVELS, AdmitLimits, Job
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from support.broker_state import POOL
from support.queue_model import ModelJob, QueueModel
from support.servers import Server

IDS = st.sampled_from([f"j{i}" for i in range(8)])
WORKERS = st.sampled_from(["w1", "w2"])
EPOCHS = st.integers(0, 4)
LEASE_MS = 600_000
MOST_JOBS, MOST_TENANT = 5, 120


class Queues(RuleBasedStateMachine):
    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.broker = Broker(connect(self.server.url), "default/chat")
        self.model = QueueModel()

    def ask(self, call: Any) -> Any:
        return self.loop.run_until_complete(call)

    def teardown(self) -> None:
        with contextlib.suppress(Exception):
            self.ask(self.broker.redis.aclose())
        self.loop.close()

    @initialize()
    def empty(self) -> None:
        self.ask(self.broker.redis.flushall())

    def holder(self, id: str, epoch: int, worker: str, truly: bool) -> tuple[int, str]:
        """Often the real holder, or hardly anything would ever be accepted."""
        job = self.model.jobs.get(id)
        return (job.hold, job.worker) if truly and job and job.worker else (epoch, worker)

    @rule(
        id=IDS,
        level=st.sampled_from(LEVELS),
        need=st.integers(1, 30),
        cost=st.integers(1, 40),
        tenant=st.sampled_from(["", "t"]),
        seq=st.integers(0, 12),
        epoch=EPOCHS,
        crashes=st.integers(0, 3),
    )
    def enqueue(
        self, id: str, level: Any, need: int, cost: int, tenant: str, seq: int, epoch: int, crashes: int
    ) -> None:
        job = Job(id, level, need, cost, "R", tenant=tenant, seq=seq, epoch=epoch, crashes=crashes)
        said = self.ask(self.broker.enqueue(POOL, job, AdmitLimits(0, MOST_JOBS, MOST_TENANT)))
        want = self.model.enqueue(id, ModelJob(level, need, cost, tenant, seq, epoch, crashes), MOST_JOBS, MOST_TENANT)
        assert said.outcome.value == want
        if want in ("admitted", "duplicate"):
            assert said.seq == self.model.jobs[id].seq

    @rule(
        worker=WORKERS,
        slots=st.integers(0, 4),
        room=st.integers(0, 80),
        weights=st.sampled_from([{"high": 3, "low": 1}, {"high": 1, "low": 1}, {"high": 1, "low": 7}]),
    )
    def claim(self, worker: str, slots: int, room: int, weights: Any) -> None:
        said = self.ask(self.broker.claim(POOL, worker, slots, room, weights, LEASE_MS))
        assert [(job.id, job.epoch) for job in said.jobs] == self.model.claim(worker, slots, room, weights)
        assert said.dropped == []

    @rule(id=IDS, epoch=EPOCHS, worker=WORKERS, truly=st.booleans())
    def beat(self, id: str, epoch: int, worker: str, truly: bool) -> None:
        epoch, worker = self.holder(id, epoch, worker, truly)
        said = self.ask(self.broker.beat(POOL, worker, {id: epoch}, LEASE_MS))
        assert said[id].value == self.model.beat(id, epoch, worker)

    @rule(id=IDS, epoch=EPOCHS, worker=WORKERS, used=st.integers(0, 60), truly=st.booleans())
    def ack(self, id: str, epoch: int, worker: str, used: int, truly: bool) -> None:
        epoch, worker = self.holder(id, epoch, worker, truly)
        said = self.ask(self.broker.ack(POOL, id, epoch, worker, used))
        assert said.value == self.model.ack(id, epoch, worker, used)

    @rule(id=IDS, epoch=EPOCHS, worker=WORKERS, crashes=st.none() | st.integers(0, 3), truly=st.booleans())
    def release(self, id: str, epoch: int, worker: str, crashes: int | None, truly: bool) -> None:
        epoch, worker = self.holder(id, epoch, worker, truly)
        said = self.ask(self.broker.release(POOL, id, epoch, worker, crashes))
        assert said.value == self.model.release(id, epoch, worker, crashes)

    @rule(id=IDS)
    def lapse(self, id: str) -> None:
        job = self.model.jobs.get(id)
        if job and job.state == "active":
            job.lapsed = True
            self.ask(self.broker.redis.zadd(keys.pool_keys(POOL)[3], {id: 0}))

    @rule()
    def reap(self) -> None:
        said = self.ask(self.broker.reap(POOL, 64))
        assert (sorted(said.requeued), said.dropped) == (self.model.reap(), [])

    @rule(id=IDS)
    def cancel(self, id: str) -> None:
        assert self.ask(self.broker.cancel(POOL, id)).value == self.model.cancel(id)

    @rule(
        id=IDS,
        epoch=EPOCHS,
        worker=WORKERS,
        level=st.sampled_from(LEVELS),
        cost=st.integers(1, 40),
        seq=st.integers(0, 12),
    )
    def restore(self, id: str, epoch: int, worker: str, level: Any, cost: int, seq: int) -> None:
        said = self.ask(
            self.broker.restore(
                POOL, Job(id, level, 5, cost, "R", tenant="t", seq=seq, epoch=epoch), epoch, worker, LEASE_MS
            )
        )
        want = self.model.restore(id, ModelJob(level, 5, cost, "t", seq, epoch, 0), epoch, worker)
        assert said.value == want

    @rule()
    def wiped(self) -> None:
        self.ask(self.broker.redis.flushall())
        self.model = QueueModel()

    @invariant()
    def same(self) -> None:
        redis, names = self.broker.redis, keys.pool_keys(POOL)
        sched = self.ask(redis.hgetall(names[0]))
        assert int(sched.get("seq", 0)) == self.model.seq
        for level, queue in zip(LEVELS, names[1:3], strict=True):
            assert self.ask(redis.zrange(queue, 0, -1)) == self.model.queue(level)
            assert int(sched.get(f"tokens:{level}", 0)) == self.model.tokens(level)
            assert float(sched.get(f"pass:{level}", 0)) == pytest.approx(self.model.passes[level])
        active = {id for id, job in self.model.jobs.items() if job.state == "active"}
        assert set(self.ask(redis.zrange(names[3], 0, -1))) == active
        for tenant in ("", "t"):
            have = self.ask(redis.hget(keys.tenant_prefix(POOL.fleet) + tenant, "tokens"))
            assert int(have or 0) == self.model.tenant(tenant)
        for id, job in self.model.jobs.items():
            hash = self.ask(redis.hgetall(keys.job_prefix(POOL) + id))
            assert hash["state"] == job.state
            if job.state == "active":
                assert (hash["worker"], int(hash["hold"]), int(hash["epoch"])) == (job.worker, job.hold, job.epoch)


def test_a_random_life_of_the_queue(broker_server: Server) -> None:
    Queues.server = broker_server
    run_state_machine_as_test(
        Queues,
        settings=settings(
            max_examples=40,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
