"""What is promised of the broker as a whole, each test named by the trouble it keeps away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from flash_wire.broker import connect as connecting
from flash_wire.broker import keys
from flash_wire.broker.client import MAX_DEAD, Broker
from flash_wire.broker.connect import connect
from flash_wire.broker.types import Acked, Admission, AdmitLimits, Cancelled, Held, Job, Pool, Released, Restored
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError, TimeoutError
from support.broker_state import LEASE_MS, POOL, contents, fleet, job, sched, seed, tenant, world
from support.servers import Server

NO_LIMIT = AdmitLimits(0, 0, 0)
WEIGHTS: Any = {"high": 3, "low": 1}


def a_job(id: str = "a", **fields: Any) -> Job:
    usual: dict[str, Any] = {"level": "high", "need": 10, "cost": 12, "owner": "R", "tenant": "t"}
    return Job(id, **(usual | fields))


async def test_a_quota_is_exact_across_two_routers(broker: Broker, broker_server: Server) -> None:
    other = Broker(connect(broker_server.url), "default/chat")
    pools = [POOL, Pool("default/chat", "standard", "r9")]
    answers = await asyncio.gather(
        *(
            side.enqueue(pools[i % 2], a_job(f"{name}{i}"), AdmitLimits(0, 0, 12 * 25))
            for i in range(40)
            for name, side in (("x", broker), ("y", other))
        )
    )
    assert sum(a.outcome is Admission.ADMITTED for a in answers) == 25
    assert {a.outcome for a in answers} == {Admission.ADMITTED, Admission.TENANT_TOKENS}
    await other.redis.aclose()


async def test_a_requeued_job_does_not_lose_its_place(broker: Broker) -> None:
    for id in "abc":
        await broker.enqueue(POOL, a_job(id), NO_LIMIT)
    first = (await broker.claim(POOL, "w1", 1, 100, WEIGHTS, LEASE_MS)).jobs[0]
    assert await broker.release(POOL, "a", first.epoch, "w1") is Released.OK
    again = await broker.claim(POOL, "w2", 3, 100, WEIGHTS, LEASE_MS)
    assert [(j.id, j.epoch) for j in again.jobs] == [("a", 2), ("b", 1), ("c", 1)]


async def test_a_worker_declared_dead_cannot_end_the_second_run(broker: Broker) -> None:
    await broker.enqueue(POOL, a_job(), NO_LIMIT)
    await broker.claim(POOL, "w1", 1, 100, WEIGHTS, LEASE_MS)
    await broker.redis.zadd(keys.pool_keys(POOL)[3], {"a": 0})
    assert (await broker.reap(POOL)).requeued == ["a"]
    await broker.claim(POOL, "w2", 1, 100, WEIGHTS, LEASE_MS)
    assert await broker.ack(POOL, "a", 1, "w1", 5) is Acked.FENCED
    assert await broker.release(POOL, "a", 1, "w1") is Released.FENCED
    assert await broker.beat(POOL, "w1", {"a": 1}, LEASE_MS) == {"a": Held.FENCED}
    assert await broker.beat(POOL, "w2", {"a": 2}, LEASE_MS) == {"a": Held.EXTENDED}


async def test_the_same_epoch_given_twice_after_a_loss_does_not_let_two_workers_speak(broker: Broker) -> None:
    await broker.enqueue(POOL, a_job(), NO_LIMIT)
    await broker.claim(POOL, "w1", 1, 100, WEIGHTS, LEASE_MS)
    await broker.redis.flushall()
    await broker.enqueue(POOL, a_job(), NO_LIMIT)
    assert (await broker.claim(POOL, "w2", 1, 100, WEIGHTS, LEASE_MS)).jobs[0].epoch == 1
    assert await broker.ack(POOL, "a", 1, "w1", 5) is Acked.FENCED
    assert await broker.beat(POOL, "w1", {"a": 1}, LEASE_MS) == {"a": Held.FENCED}


async def test_epochs_stay_above_what_the_router_saw(broker: Broker) -> None:
    await broker.enqueue(POOL, a_job(epoch=41), NO_LIMIT)
    assert (await broker.claim(POOL, "w", 1, 100, WEIGHTS, LEASE_MS)).jobs[0].epoch == 42


async def test_a_late_enqueue_or_restore_leaves_no_zombie_behind_a_cancel(broker: Broker) -> None:
    assert await broker.cancel(POOL, "a") is Cancelled.GONE
    assert (await broker.enqueue(POOL, a_job(), NO_LIMIT)).outcome is Admission.FINISHED
    assert await broker.restore(POOL, a_job(), 1, "w", LEASE_MS) is Restored.GONE
    assert (await broker.depth(POOL))[1] == 0
    assert "tenant:t" not in await contents(broker.redis)


async def test_nothing_expires_while_a_job_lives(broker: Broker) -> None:
    await broker.cancel(POOL, "x")
    await broker.enqueue(POOL, a_job(), NO_LIMIT)
    key = keys.job_prefix(POOL) + "a"
    assert await broker.redis.pttl(key) == -1
    claimed = (await broker.claim(POOL, "w", 1, 100, WEIGHTS, LEASE_MS)).jobs[0]
    assert await broker.redis.pttl(key) == -1
    await broker.release(POOL, "a", claimed.epoch, "w")
    assert await broker.redis.pttl(key) == -1
    await broker.restore(POOL, a_job(), 1, "w", LEASE_MS)
    assert await broker.redis.pttl(key) == -1
    await broker.ack(POOL, "a", 1, "w", 5)
    assert 0 < await broker.redis.pttl(key) <= 60_000


async def test_a_job_that_came_back_with_its_owner_does_not_keep_the_expiry_of_its_end(broker: Broker) -> None:
    await seed(broker.redis, world(job(state="lapsed", expires="yes"), fleet("lapsed")))
    await broker.enqueue(POOL, a_job(), NO_LIMIT)
    assert await broker.redis.pttl(keys.job_prefix(POOL) + "a") == -1


async def test_everything_ends_with_empty_accounts(broker: Broker) -> None:
    for i in range(6):
        await broker.enqueue(POOL, a_job(f"j{i}", level="high" if i % 2 else "low"), NO_LIMIT)
    await broker.cancel(POOL, "j5")
    jobs = (await broker.claim(POOL, "w", 4, 100, WEIGHTS, LEASE_MS)).jobs
    await broker.cancel(POOL, jobs[0].id)
    await broker.ack_many(POOL, "w", [(j.id, j.epoch, 3) for j in jobs[1:]])
    last = (await broker.claim(POOL, "w", 4, 100, WEIGHTS, LEASE_MS)).jobs
    await broker.release(POOL, last[0].id, last[0].epoch, "w")
    await broker.cancel(POOL, last[0].id)
    after = await contents(broker.redis)
    assert not [name for name in after if name.startswith(("tenant:", "q:")) or name == "lease"]
    assert (after["sched"]["tokens:high"], after["sched"]["tokens:low"]) == ("0", "0")


FOREIGN: list[tuple[str, Callable[[Broker], Awaitable[Any]]]] = [
    ("enqueue", lambda b: b.enqueue(POOL, a_job(), NO_LIMIT)),
    ("claim", lambda b: b.claim(POOL, "w1", 1, 100, WEIGHTS, LEASE_MS)),
    ("ack", lambda b: b.ack(POOL, "a", 1, "w1", 5)),
    ("release", lambda b: b.release(POOL, "a", 1, "w1")),
    ("cancel", lambda b: b.cancel(POOL, "a")),
    ("restore", lambda b: b.restore(POOL, a_job(), 1, "w1", LEASE_MS)),
]


@pytest.mark.parametrize(("name", "call"), FOREIGN, ids=[name for name, _ in FOREIGN])
async def test_a_job_of_an_unknown_version_is_refused_by_name_and_left_alone(
    broker: Broker, name: str, call: Callable[[Broker], Awaitable[Any]]
) -> None:
    before = world(job(v=3), {"q:high": {"a": 1}}, sched(seq=1, tokens_high=12), tenant(12, 1), fleet())
    await seed(broker.redis, before)
    with pytest.raises(ResponseError, match="job a is written in protocol 3, this process speaks 1"):
        await call(broker)
    assert await contents(broker.redis) == before


async def test_jobs_of_an_unknown_version_do_not_hold_up_what_can_be_served(broker: Broker) -> None:
    before = world(
        job("a", "active", v=3),
        job("b", "active", seq=2),
        job("c", seq=3),
        job("d", seq=4, v=3),
        {"lease": {"a": "lapsed", "b": "lapsed"}, "q:high": {"c": 3, "d": 4}},
        sched(seq=4, tokens_high=24),
        tenant(48, 4),
        fleet(),
    )
    await seed(broker.redis, before)
    assert (await broker.beat(POOL, "w1", {"a": 1, "b": 1}, LEASE_MS)) == {"a": Held.UNKNOWN, "b": Held.EXTENDED}
    assert (await broker.reap(POOL)).requeued == []
    assert [j.id for j in (await broker.claim(POOL, "w", 5, 100, WEIGHTS, LEASE_MS)).jobs] == ["c"]


async def test_a_neighbouring_release_is_served(broker: Broker) -> None:
    await seed(broker.redis, world(job(v=2), {"q:high": {"a": 1}}, sched(seq=1, tokens_high=12), tenant(12, 1)))
    assert [j.id for j in (await broker.claim(POOL, "w", 5, 100, WEIGHTS, LEASE_MS)).jobs] == ["a"]


async def test_active_without_a_lease_does_not_stay_for_ever(broker: Broker) -> None:
    await seed(
        broker.redis,
        world(
            job("a", "active"),
            job("b", "active", seq=2),
            job("c", seq=3),
            job("d", "done"),
            job("e", "active", v=3),
            {"lease": {"b": "leased"}},
            tenant(36, 3),
            fleet(),
        ),
    )
    repaired: list[str] = []
    for _ in range(20):
        step = await broker.sweep(POOL)
        repaired += step.repaired
        if step.finished:
            break
    assert sorted(repaired) == ["a", "c", "d"]
    after = await contents(broker.redis)
    assert after["q:high"] == {"a": 1, "c": 3}
    assert after["job:d"]["expires"] == "yes"
    assert not (await broker.sweep(POOL)).repaired


async def test_the_sweep_sees_its_own_pool_only(broker: Broker) -> None:
    twin = Pool("default/chat", "flash", "r?")  # a pattern that would match r1
    await seed(broker.redis, world(job("a", "active")))
    assert not (await broker.sweep(twin)).repaired


async def test_lists_are_bounded(broker: Broker) -> None:
    for i in range(0, 300, 100):
        await broker.enqueue_many(POOL, [a_job(f"j{n}") for n in range(i, i + 100)], NO_LIMIT)
    assert await broker.redis.llen(keys.wake_key(POOL)) == 64
    async with broker.redis.pipeline(transaction=False) as pipe:
        pipe.zadd(keys.dead_key(POOL), {f"old{i}": i for i in range(MAX_DEAD)})
        await pipe.execute()
    assert await broker.bury(POOL, "poison") == MAX_DEAD
    listed = await broker.dead(POOL, MAX_DEAD)
    assert listed[0][0] == "poison"
    assert "old0" not in dict(listed)


async def test_a_worker_is_woken_and_never_blocks_for_long(broker: Broker) -> None:
    before = time.monotonic()
    assert await broker.wait(POOL, 60) is False
    assert 0.5 < time.monotonic() - before < 10
    waiting = asyncio.create_task(broker.wait(POOL))
    await broker.enqueue(POOL, a_job(), NO_LIMIT)
    assert await waiting is True


async def test_a_broker_that_forgot_its_scripts_is_taught_again(broker: Broker) -> None:
    await broker.enqueue(POOL, a_job(), NO_LIMIT)
    await broker.redis.script_flush()
    assert len((await broker.claim(POOL, "w", 1, 100, WEIGHTS, LEASE_MS)).jobs) == 1


@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_a_restart_a_wipe_and_a_kill_are_each_noticed(start_server: Callable[..., Server], kind: str) -> None:
    server = start_server(kind, appendonly=True)
    broker = Broker(connect(server.url), "default/chat")
    await broker.enqueue(POOL, a_job(), NO_LIMIT)
    seen = [await broker.generation()]
    assert await broker.generation() == seen[0]
    await broker.redis.flushall()
    seen.append(await broker.generation())
    await broker.enqueue(POOL, a_job(), NO_LIMIT)
    for keep in (True, False):
        server.restart(keep_data=keep)
        for _ in range(100):
            try:
                seen.append(await broker.generation())
                break
            except RedisConnectionError:
                await asyncio.sleep(0.05)
        assert ((await broker.depth(POOL))[0]["high"].queued == 1) is keep
    assert len(set(seen)) == 4
    server.kill()
    with pytest.raises(RedisConnectionError):
        await broker.depth(POOL)
    await broker.redis.aclose()


async def test_a_broker_that_does_not_answer_is_given_up_in_time(
    start_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "OPERATION_S", 0.3)
    server = start_server("redis")
    broker = Broker(connect(server.url), "default/chat")
    await broker.depth(POOL)
    server.freeze()
    before = time.monotonic()
    with pytest.raises(TimeoutError):
        await broker.depth(POOL)
    assert time.monotonic() - before < 5
    server.thaw()
    assert (await broker.depth(POOL))[1] == 0
    await broker.redis.aclose()


@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_every_script_is_legal_in_a_cluster(start_server: Callable[..., Server], kind: str) -> None:
    """One slot per FlashDeployment: a cluster refuses a script that reaches into another."""
    server = start_server(kind, extra=("--cluster-enabled", "yes"))
    broker = Broker(connect(server.url), "default/chat")
    await broker.redis.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    for _ in range(200):
        if "cluster_state:ok" in await broker.redis.execute_command("CLUSTER", "INFO"):
            break
        await asyncio.sleep(0.05)
    from flash_wire import fleet as fleets

    await fleets.announce_worker(broker, "default/chat", fleets.WorkerRecord("w", "w", "flash", "ready", rev="r1"))
    await broker.enqueue_many(POOL, [a_job("a"), a_job("b"), a_job("c")], AdmitLimits(100, 100, 100))
    await broker.claim(POOL, "w", 2, 100, WEIGHTS, LEASE_MS)
    await broker.beat(POOL, "w", {"a": 1}, LEASE_MS)
    assert await broker.ack(POOL, "a", 1, "w", 5) is Acked.OK
    assert await broker.release(POOL, "b", 1, "w") is Released.OK
    assert await broker.restore(POOL, a_job("d"), 1, "w", LEASE_MS) is Restored.OK
    assert await broker.cancel(POOL, "d") is Cancelled.ACTIVE
    await broker.reap(POOL)
    await broker.sweep(POOL)
    await broker.bury(POOL, "d")
    assert (await fleets.snapshot(broker, "default/chat")).pools[0].levels["high"].queued == 2
    slots = {await broker.redis.execute_command("CLUSTER", "KEYSLOT", k) for k in await broker.redis.keys("*")}
    assert len(slots) == 1
    await broker.redis.aclose()


@pytest.mark.parametrize("url", ["redis://user:hunter2@127.0.0.1:1/0", "rediss://:hunter2@example.test:6380"])
def test_no_password_is_shown(url: str) -> None:
    client = connect(url)
    assert "hunter2" not in repr(client) + str(client) + repr(client.connection_pool)


def test_no_password_is_shown_by_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"redis://127\.0\.0\.1 cannot be read") as caught:
        connect("redis://:hunter2@127.0.0.1:port")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="must start with redis://"):
        connect("http://127.0.0.1")


@pytest.mark.parametrize("fleet_name", ["chat", "a/b/c", "a/{b}", "", "a/"])
def test_a_fleet_that_would_leave_its_slot_is_refused(fleet_name: str) -> None:
    with pytest.raises(ValueError, match="namespace/name"):
        Broker(connect("redis://127.0.0.1:1"), fleet_name)


@pytest.mark.parametrize("wrong", [{"need": 0}, {"cost": 0}, {"level": "middle"}, {"owner": ""}])
async def test_a_job_that_makes_no_sense_is_refused_before_it_is_sent(wrong: dict[str, Any]) -> None:
    broker = Broker(connect("redis://127.0.0.1:1"), "default/chat")
    with pytest.raises(ValueError, match="job a"):
        await broker.enqueue(POOL, a_job(**wrong), NO_LIMIT)
